// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/chunk.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/checksum.h"
#include "glog/logging.h"

namespace causeway {

v1::Chunk MakeChunk(absl::string_view object, uint64_t offset,
                    uint64_t max_bytes) {
  CHECK_LT(offset, object.size());
  CHECK_GT(max_bytes, 0u);
  CHECK_LE(max_bytes, kMaxChunkBytes);
  const absl::string_view data = object.substr(offset, max_bytes);
  v1::Chunk chunk;
  chunk.set_offset(offset);
  chunk.set_crc32c(Crc32c(data));
  chunk.set_data(data.data(), data.size());
  return chunk;
}

absl::Status ChunkAssembler::Add(const v1::Chunk& chunk) {
  const uint64_t bytes = chunk.data().size();
  if (bytes == 0 || bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("chunk at offset %d has %d bytes, want 1 to %d",
                        chunk.offset(), bytes, kMaxChunkBytes));
  }
  if (chunk.offset() != next_offset_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk begins at offset %d, want %d: chunks come in order and "
        "without gaps",
        chunk.offset(), next_offset_));
  }
  if (bytes > destination_.size() - next_offset_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk of %d bytes at offset %d goes beyond the object's %d bytes",
        bytes, chunk.offset(), destination_.size()));
  }
  const uint32_t crc32c = Crc32c(chunk.data());
  if (crc32c != chunk.crc32c()) {
    return absl::DataLossError(absl::StrFormat(
        "chunk of %d bytes at offset %d has CRC-32C %08x, sent as %08x", bytes,
        chunk.offset(), crc32c, chunk.crc32c()));
  }
  std::memcpy(destination_.data() + next_offset_, chunk.data().data(), bytes);
  next_offset_ += bytes;
  return absl::OkStatus();
}

}  // namespace causeway
