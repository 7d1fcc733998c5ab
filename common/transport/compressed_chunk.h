// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compresses chunks of fp32 values (common/tensors/byte_planes.h). Offsets
// count the values' bytes, so that a transfer can resume after any chunk,
// compressed or not.
//
// Sender:    std::string memory;   // outlives the chunk
//            chunk = CompressChunk(CutChunk(object, offset), memory);
// Receiver:  ASSIGN_OR_RETURN(chunk, DecompressChunk(chunk, memory));
//            RETURN_IF_ERROR(assembler.Add(chunk));
#ifndef COMMON_TRANSPORT_COMPRESSED_CHUNK_H_
#define COMMON_TRANSPORT_COMPRESSED_CHUNK_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/transport/chunk.h"

namespace causeway {

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

#endif  // COMMON_TRANSPORT_COMPRESSED_CHUNK_H_
