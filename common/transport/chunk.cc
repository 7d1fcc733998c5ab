// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/chunk.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/tensors/byte_planes.h"
#include "common/transport/past_caches.h"
#include "glog/logging.h"
#include "proto/fragment.pb.h"

namespace causeway {
namespace {

// Small enough that after the first look at the data all others find it in the
// first-level cache.
constexpr size_t kTileBytes = 16 << 10;

// Prefetches the beginning of a piece. The network's pieces are scattered over
// memory, mostly in another core's cache, where the hardware cannot predict
// them.
void Prefetch(absl::string_view piece) {
  constexpr size_t kCacheLineBytes = 64;
  const size_t end = std::min(piece.size(), kTileBytes);
  for (size_t i = 0; i < end; i += kCacheLineBytes) {
    __builtin_prefetch(piece.data() + i);
  }
}

}  // namespace

uint64_t Chunk::size() const {
  uint64_t bytes = 0;
  for (const absl::string_view piece : pieces) bytes += piece.size();
  return bytes;
}

Chunk CutChunk(absl::string_view object, uint64_t offset, uint64_t max_bytes) {
  CHECK_LT(offset, object.size());
  CHECK_GT(max_bytes, 0u);
  CHECK_LE(max_bytes, kMaxChunkBytes);
  const absl::string_view data = object.substr(offset, max_bytes);
  return {.offset = offset, .crc32c = Crc32c(data), .pieces = {data}};
}

absl::Status ChunkAssembler::Add(
    const Chunk& chunk, absl::FunctionRef<void(absl::string_view)> look) {
  if (chunk.compression != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk at offset %d is compressed (%d), but only the parameters of "
        "downloads may be",
        chunk.offset, chunk.compression));
  }
  const uint64_t bytes = chunk.size();
  if (bytes == 0 || bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("chunk at offset %d has %d bytes, want 1 to %d",
                        chunk.offset, bytes, kMaxChunkBytes));
  }
  if (chunk.offset != next_offset_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk begins at offset %d, want %d: chunks come in order and "
        "without gaps",
        chunk.offset, next_offset_));
  }
  if (bytes > destination_.size() - next_offset_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "chunk of %d bytes at offset %d goes beyond the object's %d bytes",
        bytes, chunk.offset, destination_.size()));
  }
  Digest128Stream digest = digest_;
  uint32_t crc32c = 0;
  char* to = destination_.data() + next_offset_;
  for (size_t i = 0; i < chunk.pieces.size(); ++i) {
    const absl::string_view piece = chunk.pieces[i];
    if (i + 1 < chunk.pieces.size()) Prefetch(chunk.pieces[i + 1]);
    for (size_t begin = 0; begin < piece.size(); begin += kTileBytes) {
      const absl::string_view tile = piece.substr(begin, kTileBytes);
      crc32c = ExtendCrc32c(crc32c, tile);
      digest.Update(tile);
      look(tile);
      if (use_ == Use::kSoon) {
        std::memcpy(to, tile.data(), tile.size());
      } else {
        CopyPastCaches(tile, to);
      }
      to += tile.size();
    }
  }
  if (use_ == Use::kLater) FlushPastCaches();
  if (crc32c != chunk.crc32c) {
    return absl::DataLossError(absl::StrFormat(
        "chunk of %d bytes at offset %d has CRC-32C %08x, sent as %08x", bytes,
        chunk.offset, crc32c, chunk.crc32c));
  }
  digest_ = digest;
  next_offset_ += bytes;
  return absl::OkStatus();
}

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
        "chunk at offset %d has %d bytes that should decompress to %d; want "
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
