// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte streams in chunks: cutting an object into chunks, and putting them
// together again, in order, bounded and checked. Bytes are not copied but by
// the assembler; v1::Chunk is how a chunk travels
// (common/transport/chunk_message.h).
//
// Sender:    for (offset = 0; offset < object.size();
//                 offset += chunk.size()) {
//              chunk = CutChunk(object, offset);    // send it
//            }
// Receiver:  ChunkAssembler assembler(buffer);      // as large as the object
//            RETURN_IF_ERROR(assembler.Add(chunk));
//            if (assembler.next_offset() == size &&
//                assembler.digest() == expected) ...
//
// A transfer that broke off goes on from ChunkAssembler::next_offset().
//
// Chunks of exact values may be compressed
// (common/transport/compressed_chunk.h).
#ifndef COMMON_TRANSPORT_CHUNK_H_
#define COMMON_TRANSPORT_CHUNK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"

namespace causeway {

// The most data in one chunk.
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;

// One chunk; its data lies elsewhere.
struct Chunk {
  // Position of the first byte in the object, before compression.
  uint64_t offset = 0;
  // CRC-32C of the data, as the sender said.
  uint32_t crc32c = 0;
  // The data, in the pieces that the network delivered it in.
  std::vector<absl::string_view> pieces;
  // v1::Chunk::Compression, as the sender said: any number. 0 is none.
  uint32_t compression = 0;
  // Bytes of the object, if it is compressed.
  uint32_t raw_bytes = 0;

  // Bytes of data.
  uint64_t size() const;
};

// The chunk of `object` that begins at `offset` (less than object.size()): the
// rest of the object or `max_bytes`, whichever is less. `max_bytes` is 1 to
// kMaxChunkBytes.
Chunk CutChunk(absl::string_view object, uint64_t offset,
               uint64_t max_bytes = kMaxChunkBytes);

// Not thread-safe.
class ChunkAssembler {
 public:
  // When the object is going to be read.
  enum class Use {
    // As it comes in: it goes through the caches.
    kSoon,
    // After more has come than caches hold.
    kLater,
  };

  // `destination` has room for the object and outlives the assembler. The
  // assembler writes there only.
  explicit ChunkAssembler(absl::Span<char> destination, Use use = Use::kSoon)
      : destination_(destination), use_(use) {}

  // Takes the next chunk. After an error the chunks so far are as before; what
  // lies in the destination behind them is undefined. `look` is called with the
  // chunk's data in order, in pieces that are in the first-level cache, also if
  // the CRC will turn out to be wrong.
  //   INVALID_ARGUMENT  compressed; empty or too large; not at next_offset();
  //                     beyond the destination's end.
  //   DATA_LOSS         the CRC is wrong.
  absl::Status Add(
      const Chunk& chunk, absl::FunctionRef<void(absl::string_view)> look =
                              [](absl::string_view) {});

  // Bytes so far; where the next chunk begins.
  uint64_t next_offset() const { return next_offset_; }

  // Digest128 of the bytes so far.
  std::string digest() const { return digest_.Finish(); }

 private:
  const absl::Span<char> destination_;
  const Use use_;
  uint64_t next_offset_ = 0;
  Digest128Stream digest_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CHUNK_H_
