// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/download_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/edge/upload_turns.h"

namespace causeway {
namespace {

// Bound the pace from below, in bytes per second and by the time that a chunk
// takes, because a download keeps its object in memory until it ends.
constexpr double kSlowestPace = 1000;
constexpr absl::Duration kLongestChunkTime = absl::Minutes(1);

}  // namespace

uint64_t ChunkBytes(const v1::StreamOptions& stream) {
  return stream.chunk_bytes() > 0 ? stream.chunk_bytes() : kMaxChunkBytes;
}

absl::Status CheckDownload(const v1::StreamOptions& stream) {
  if (stream.count() > SharedUploads::kMaxStreams ||
      stream.index() >= std::max(1u, stream.count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream ", stream.index(), " of ", stream.count(),
                     " is asked for; allowed: at most ",
                     SharedUploads::kMaxStreams, ", counted from 0"));
  }
  if (stream.chunk_bytes() > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", stream.chunk_bytes(), "; at most ",
                     kMaxChunkBytes, " are allowed"));
  }
  const double pace = stream.pace_bytes_per_second();
  const double slowest =
      std::max(kSlowestPace, static_cast<double>(ChunkBytes(stream)) /
                                 absl::ToDoubleSeconds(kLongestChunkTime));
  if (pace != 0 && !(pace >= slowest)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pace_bytes_per_second is ", pace, "; with chunks of ",
        ChunkBytes(stream), " bytes 0, or ", slowest, " and more, is allowed"));
  }
  return absl::OkStatus();
}

}  // namespace causeway
