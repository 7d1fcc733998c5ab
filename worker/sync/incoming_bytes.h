// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An object that arrives in chunks, over one connection after another.
#ifndef WORKER_SYNC_INCOMING_BYTES_H_
#define WORKER_SYNC_INCOMING_BYTES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"

namespace causeway {

// Not thread-safe. Moving it leaves the received bytes where they are.
class IncomingBytes {
 public:
  // Makes an empty object, with no room.
  IncomingBytes() : IncomingBytes(0) {}
  // Makes room for an object of `size` bytes.
  explicit IncomingBytes(uint64_t size)
      : size_(size),
        // The memory is not cleared: only received bytes are read.
        buffer_(new char[size]),
        assembler_(std::make_unique<ChunkAssembler>(
            absl::MakeSpan(buffer_.get(), size))) {}

  // Adds a chunk, which may be compressed. Errors are those of
  // DecompressChunk() and ChunkAssembler::Add.
  absl::Status Add(const Chunk& chunk) {
    ASSIGN_OR_RETURN(const Chunk raw, DecompressChunk(chunk, decompressed_));
    return assembler_->Add(raw);
  }

  uint64_t size() const { return size_; }
  absl::string_view received() const {
    return absl::string_view(buffer_.get(), assembler_->next_offset());
  }
  // The Digest128 of received().
  std::string digest() const { return assembler_->digest(); }

 private:
  uint64_t size_;
  std::unique_ptr<char[]> buffer_;
  std::unique_ptr<ChunkAssembler> assembler_;
  // The memory for a chunk's decompressed bytes.
  std::string decompressed_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_INCOMING_BYTES_H_
