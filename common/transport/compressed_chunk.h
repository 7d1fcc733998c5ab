// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Chunks of fp32 values in fewer bytes (common/byte_planes.h). Offsets count
// the values' bytes, so that a transfer goes on at any chunk's end, compressed
// or not.
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

// `chunk`, of one piece, compressed into `memory`; or as it is if that does not
// make it smaller. It should begin with a value, but need not.
Chunk CompressChunk(const Chunk& chunk, std::string& memory);

// `chunk` with its data decompressed into `memory`; as it is if it is not
// compressed.
//   INVALID_ARGUMENT  the compression is unknown; the data or what it
//                     decompresses to is empty or too large; the data is not
//                     what CompressChunk makes.
//   DATA_LOSS         the CRC is wrong.
absl::StatusOr<Chunk> DecompressChunk(const Chunk& chunk, std::string& memory);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_COMPRESSED_CHUNK_H_
