// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What Decoder::SumOfSquares says of a strip that is not entropy coded, found
// while its bytes come in: they are looked at where they lie, tile by tile.
//
//   StripSquares squares(planes, values);
//   squares.Look(bytes);  // the next ones, whenever some have come
//   ASSIGN_OR_RETURN(const double sum, squares.Sum());  // after the last
#ifndef QUANTIZATION_STRIP_SQUARES_H_
#define QUANTIZATION_STRIP_SQUARES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/strip_planes.h"

namespace causeway {

// Keeps the scales and what has come of a tile. For one thread at a time.
class StripSquares {
 public:
  // Of a strip of `values` values; `planes` outlives it.
  StripSquares(const StripPlanes& planes, uint64_t values);

  // Bytes of the strip that have not come yet.
  uint64_t missing_bytes() const { return missing_bytes_; }

  // The next bytes, at most missing_bytes().
  void Look(absl::string_view bytes);

  // After the last byte.
  //   INVALID_ARGUMENT  a value is not finite.
  absl::StatusOr<double> Sum() const;

 private:
  // `codes` are those of the next tile.
  void LookAtTile(const char* codes);
  // Values of the next tile.
  uint64_t TileValues() const;

  const StripPlanes& planes_;
  const uint64_t values_;
  const uint64_t scale_bytes_;
  uint64_t missing_bytes_;
  std::string scales_;
  // The beginning of a tile's codes.
  std::string codes_;
  // Values of the tiles so far, and the sum of their squares.
  uint64_t looked_ = 0;
  double sum_ = 0;
  absl::Status finite_;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIP_SQUARES_H_
