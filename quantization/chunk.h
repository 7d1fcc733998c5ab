// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Byte streams in chunks: cutting an object into v1::Chunk, and putting the
// chunks together again, in order, bounded and checked.
//
// Sender:    for (offset = 0; offset < object.size();
//                 offset += chunk.data().size()) {
//              chunk = MakeChunk(object, offset);  // send it
//            }
// Receiver:  ChunkAssembler assembler(buffer);     // of the expected size
//            RETURN_IF_ERROR(assembler.Add(chunk));
//            if (assembler.complete()) ...
//
// A transfer that broke off goes on from ChunkAssembler::next_offset().
#ifndef QUANTIZATION_CHUNK_H_
#define QUANTIZATION_CHUNK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/fragment.pb.h"

namespace causeway {

// The most data in one chunk.
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;

// The chunk of `object` that begins at `offset` (less than object.size()): the
// rest of the object or `max_bytes`, whichever is less. `max_bytes` is 1 to
// kMaxChunkBytes.
v1::Chunk MakeChunk(absl::string_view object, uint64_t offset,
                    uint64_t max_bytes = kMaxChunkBytes);

// Not thread-safe.
class ChunkAssembler {
 public:
  // `destination` has the size of the object and outlives the assembler. The
  // assembler writes there only and allocates nothing. `next_offset` (at most
  // the size) is where an earlier try broke off.
  explicit ChunkAssembler(absl::Span<char> destination,
                          uint64_t next_offset = 0)
      : destination_(destination), next_offset_(next_offset) {}

  // Takes the next chunk. After an error nothing has changed.
  //   INVALID_ARGUMENT  empty or too large; not at next_offset(); beyond the
  //                     object's end.
  //   DATA_LOSS         the CRC is wrong.
  absl::Status Add(const v1::Chunk& chunk);

  // Bytes so far; where the next chunk begins.
  uint64_t next_offset() const { return next_offset_; }

  // True from the start for an empty object.
  bool complete() const { return next_offset_ == destination_.size(); }

 private:
  const absl::Span<char> destination_;
  uint64_t next_offset_;
};

}  // namespace causeway

#endif  // QUANTIZATION_CHUNK_H_
