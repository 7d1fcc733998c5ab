// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/compressed_chunk.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "common/tensors/byte_planes.h"
#include "glog/logging.h"
#include "proto/fragment.pb.h"

namespace causeway {

Chunk CompressChunk(const Chunk& chunk, std::string& memory) {
  CHECK_EQ(chunk.pieces.size(), 1u);
  memory = CompressPlanes(chunk.pieces[0], sizeof(float));
  if (memory.empty()) return chunk;
  return {.offset = chunk.offset,
          .crc32c = Crc32c(memory),
          .pieces = {memory},
          .compression = v1::Chunk::FP32_PLANES,
          .raw_bytes = static_cast<uint32_t>(chunk.size())};
}

absl::StatusOr<Chunk> DecompressChunk(const Chunk& chunk, std::string& memory) {
  if (chunk.compression == v1::Chunk::UNCOMPRESSED) return chunk;
  if (chunk.compression != v1::Chunk::FP32_PLANES) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk at offset %d is compressed by method %d, which this version "
        "does not know",
        chunk.offset, chunk.compression));
  }
  if (chunk.raw_bytes == 0 || chunk.raw_bytes > kMaxChunkBytes ||
      chunk.size() >= chunk.raw_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk at offset %d has %d bytes that are to decompress to %d; want "
        "fewer bytes, to 1 to %d",
        chunk.offset, chunk.size(), chunk.raw_bytes, kMaxChunkBytes));
  }
  const std::string data = absl::StrJoin(chunk.pieces, "");
  if (const uint32_t crc32c = Crc32c(data); crc32c != chunk.crc32c) {
    return absl::DataLossError(absl::StrFormat(
        "compressed chunk of %d bytes at offset %d has CRC-32C %08x, sent as "
        "%08x",
        data.size(), chunk.offset, crc32c, chunk.crc32c));
  }
  memory.resize(chunk.raw_bytes);
  RETURN_IF_ERROR(
      DecompressPlanes(data, sizeof(float), absl::MakeSpan(memory)));
  return Chunk{
      .offset = chunk.offset, .crc32c = Crc32c(memory), .pieces = {memory}};
}

}  // namespace causeway
