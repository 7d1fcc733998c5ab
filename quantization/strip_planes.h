// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What formats with scales have in common: the values of a strip become a plane
// of scales and a plane of codes. Codecs put the planes side by side, or
// compress the codes; how values become codes is the format's.
#ifndef QUANTIZATION_STRIP_PLANES_H_
#define QUANTIZATION_STRIP_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace causeway {

// A strip's planes or a part of them: from where the first value's block and
// code lie. Parts begin at multiples of kPieceAlignment values.
struct ConstStripPart {
  const char* scales = nullptr;
  const char* codes = nullptr;
  // Of the whole strip: StripHeader::parameter.
  uint8_t parameter = 0;
};
struct StripPart {
  char* scales = nullptr;
  char* codes = nullptr;
};

// Thread-safe.
class StripPlanes {
 public:
  virtual ~StripPlanes() = default;

  // Bits of a code in the code plane: 8 or 4.
  virtual uint32_t code_bits() const = 0;

  // Bytes of each plane of `values` values.
  virtual uint64_t ScaleBytes(uint64_t values) const = 0;
  virtual uint64_t CodeBytes(uint64_t values) const = 0;

  // Encodes values [begin, begin + values.size()) of the vector and returns the
  // strip's parameter. Formats that have one need the whole strip at once.
  // `decoded`, if it is not empty, has the size of `values`, may be the same
  // memory, and receives what Decode() will make of them.
  virtual uint8_t Encode(uint64_t begin, absl::Span<const float> values,
                         StripPart part, absl::Span<float> decoded) const = 0;

  virtual void Decode(ConstStripPart part, absl::Span<float> values) const = 0;

  // accumulator[i] += weight * decoded value i, rounded as Accumulate().
  virtual void DecodeAccumulate(ConstStripPart part, float weight,
                                absl::Span<float> accumulator) const = 0;

  // Values whose squares have a sum of their own.
  static constexpr uint64_t kTileValues = 4096;

  // The sum of the squares of `count` values in binary64: of each tile by
  // itself, then those of the tiles in order.
  double SumOfSquares(ConstStripPart part, uint64_t count) const;

  // The same of at most kTileValues values, in an order that depends on nothing
  // else. They are decoded unless a format knows better.
  virtual double SumOfTile(ConstStripPart part, uint64_t count) const;

  // INVALID_ARGUMENT if one of `count` values does not decode to a finite
  // number. Messages call them values [begin, begin + count) of `size`.
  virtual absl::Status CheckFinite(ConstStripPart part, uint64_t count,
                                   uint64_t begin, uint64_t size) const = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIP_PLANES_H_
