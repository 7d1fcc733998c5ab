// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_squares.h"

#include <algorithm>

#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

StripSquares::StripSquares(const StripPlanes& planes, uint64_t values)
    : planes_(planes),
      values_(values),
      scale_bytes_(planes.ScaleBytes(values)),
      missing_bytes_(scale_bytes_ + planes.CodeBytes(values)) {}

void StripSquares::Look(absl::string_view bytes) {
  CHECK_LE(bytes.size(), missing_bytes_);
  missing_bytes_ -= bytes.size();
  // Takes what `to` lacks of `size` bytes.
  const auto take = [&bytes](uint64_t size, std::string& to) {
    const absl::string_view taken = bytes.substr(0, size - to.size());
    to.append(taken.data(), taken.size());
    bytes.remove_prefix(taken.size());
  };
  take(scale_bytes_, scales_);
  while (!bytes.empty()) {
    const uint64_t tile_bytes = planes_.CodeBytes(TileValues());
    if (codes_.empty() && bytes.size() >= tile_bytes) {
      LookAtTile(bytes.data());
      bytes.remove_prefix(tile_bytes);
      continue;
    }
    take(tile_bytes, codes_);
    if (codes_.size() < tile_bytes) return;
    LookAtTile(codes_.data());
    codes_.clear();
  }
}

uint64_t StripSquares::TileValues() const {
  return std::min(StripPlanes::kTileValues, values_ - looked_);
}

void StripSquares::LookAtTile(const char* codes) {
  const uint64_t count = TileValues();
  const ConstStripPart tile = {
      .scales = scales_.data() + planes_.ScaleBytes(looked_), .codes = codes};
  if (finite_.ok()) {
    finite_ = planes_.CheckFinite(tile, count, looked_, values_);
  }
  if (finite_.ok()) sum_ += planes_.SumOfTile(tile, count);
  looked_ += count;
}

absl::StatusOr<double> StripSquares::Sum() const {
  CHECK_EQ(missing_bytes_, 0u);
  RETURN_IF_ERROR(finite_);
  return sum_;
}

}  // namespace causeway
