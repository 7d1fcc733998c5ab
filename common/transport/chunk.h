// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts an object into chunks, and reassembles them in order, bounded and
// checked. Only the assembler copies bytes. A chunk travels as a v1::Chunk
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
// A transfer that broke off resumes at ChunkAssembler::next_offset().
//
// Chunks of exact values may be compressed (CompressChunk).
#ifndef COMMON_TRANSPORT_CHUNK_H_
#define COMMON_TRANSPORT_CHUNK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"

namespace causeway {

// The most data in one chunk, in bytes.
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;

// One chunk. It does not own its data.
struct Chunk {
  // The position of the first byte in the object, before compression.
  uint64_t offset = 0;
  // The CRC-32C of the data, as the sender reports it.
  uint32_t crc32c = 0;
  // The data, in the pieces in which the network delivered it.
  std::vector<absl::string_view> pieces;
  // The v1::Chunk::Compression that the sender reports, which may be any
  // number. 0 is none.
  uint32_t compression = 0;
  // The size of the object's bytes, if the chunk is compressed.
  uint32_t raw_bytes = 0;

  // Returns the size of the data in bytes.
  uint64_t size() const;
};

// Returns the chunk of `object` that begins at `offset` (less than
// object.size()): the rest of the object or `max_bytes`, whichever is less.
// `max_bytes` is 1 to kMaxChunkBytes.
Chunk CutChunk(absl::string_view object, uint64_t offset,
               uint64_t max_bytes = kMaxChunkBytes);

// Puts an object together from its chunks. Not thread-safe.
class ChunkAssembler {
 public:
  // Says when the caller will read the object.
  enum class Use {
    // As it arrives: the assembler writes through the caches.
    kSoon,
    // After more has arrived than caches hold.
    kLater,
  };

  // `destination` has room for the object and outlives the assembler. The
  // assembler writes there only.
  explicit ChunkAssembler(absl::Span<char> destination, Use use = Use::kSoon)
      : destination_(destination), use_(use) {}

  // Takes the next chunk. After an error the earlier chunks are unchanged, and
  // the destination behind them is undefined. Calls `look` with the chunk's
  // data in order, in pieces that are in the first-level cache, even if the CRC
  // turns out to be wrong.
  //   INVALID_ARGUMENT  the chunk is compressed, empty or too large, does not
  //                     begin at next_offset(), or reaches beyond the
  //                     destination.
  //   DATA_LOSS         the CRC is wrong.
  absl::Status Add(
      const Chunk& chunk, absl::FunctionRef<void(absl::string_view)> look =
                              [](absl::string_view) {});

  // Returns the bytes so far, which is where the next chunk begins.
  uint64_t next_offset() const { return next_offset_; }

  // Returns the Digest128 of the bytes so far.
  std::string digest() const { return digest_.Finish(); }

 private:
  const absl::Span<char> destination_;
  const Use use_;
  uint64_t next_offset_ = 0;
  Digest128Stream digest_;
};

// Compresses chunks of fp32 values (common/tensors/byte_planes.h). Offsets
// count the values' bytes, so that a transfer can resume after any chunk,
// compressed or not.
//
// Sender:    std::string memory;   // outlives the chunk
//            chunk = CompressChunk(CutChunk(object, offset), memory);
// Receiver:  ASSIGN_OR_RETURN(chunk, DecompressChunk(chunk, memory));
//            RETURN_IF_ERROR(assembler.Add(chunk));

// Returns `chunk`, which has one piece, compressed into `memory`; or `chunk`
// itself if that does not make it smaller. A chunk that begins within a value
// compresses less well.
Chunk CompressChunk(const Chunk& chunk, std::string& memory);

// Returns `chunk` with its data decompressed into `memory`, or `chunk` itself
// if it is not compressed.
//   INVALID_ARGUMENT  the compression is unknown, the data are empty, too large
//                     or not made by CompressChunk, or they decompress to
//                     nothing or to too much.
//   DATA_LOSS         the CRC is wrong.
absl::StatusOr<Chunk> DecompressChunk(const Chunk& chunk, std::string& memory);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CHUNK_H_
