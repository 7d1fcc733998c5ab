// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// All formats turn the values of a strip into a plane of scales and a plane of
// codes. A format without scales has codes only, its
// values. Encoders put the planes side by side, or compress the codes; how
// values become codes is the format's.
#ifndef QUANTIZATION_STRIPS_PLANES_H_
#define QUANTIZATION_STRIPS_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quantization/encode_options.h"

namespace causeway {

// A strip's planes or a part of them: from where the first value's block and
// code lie. Parts begin at multiples of kPieceAlignment values.
struct ConstStripPart {
  const char* scales = nullptr;
  const char* codes = nullptr;
  // StripHeader::parameter of the whole strip.
  uint8_t parameter = 0;
};
struct StripPart {
  char* scales = nullptr;
  char* codes = nullptr;
};

// A part, and the factor of its values in a sum.
struct WeightedPart {
  ConstStripPart part;
  float weight = 0;
};

// The planes of one format and block size. Thread-safe.
class StripPlanes {
 public:
  // Bits of a code in the code plane. Codes of 8 and 4 bits can be compressed.
  virtual uint32_t code_bits() const = 0;

  // Bytes of each plane of `values` values, and of both.
  virtual uint64_t ScaleBytes(uint64_t values) const = 0;
  virtual uint64_t CodeBytes(uint64_t values) const = 0;
  uint64_t Bytes(uint64_t values) const {
    return ScaleBytes(values) + CodeBytes(values);
  }

  // The part of `part` from its value `value` on, a multiple of
  // kPieceAlignment.
  ConstStripPart PartFrom(ConstStripPart part, uint64_t value) const {
    return {.scales = part.scales + ScaleBytes(value),
            .codes = part.codes + CodeBytes(value),
            .parameter = part.parameter};
  }

  // Encodes values [begin, begin + values.size()) of the vector and returns the
  // strip's parameter. Formats that have one need the whole strip at once.
  // `decoded`, if it is not empty, has the size of `values`, may be the same
  // memory, and receives what Decode() will make of them.
  virtual uint8_t Encode(const EncodeOptions& options, uint64_t begin,
                         absl::Span<const float> values, StripPart part,
                         absl::Span<float> decoded) const = 0;

  virtual void Decode(ConstStripPart part, absl::Span<float> values) const = 0;

  // accumulator[i] += weight * decoded value i, rounded as Accumulate().
  virtual void DecodeAccumulate(ConstStripPart part, float weight,
                                absl::Span<float> accumulator) const = 0;

  // sum[i] = 0 + the terms' weighted values i, in order, rounded as
  // Accumulate().
  virtual void DecodeSum(absl::Span<const WeightedPart> terms,
                         absl::Span<float> sum) const;

  // Values whose squares have a sum of their own.
  static constexpr uint64_t kTileValues = 4096;

  // The sum of the squares of at most kTileValues values in binary64, in an
  // order that depends on their number only. Decodes them unless a format knows
  // better.
  virtual double SumOfSquares(ConstStripPart part, uint64_t count) const;

  // INVALID_ARGUMENT if one of `count` values does not decode to a finite
  // number. Messages call them values [begin, begin + count) of `size`.
  virtual absl::Status CheckFinite(ConstStripPart part, uint64_t count,
                                   uint64_t begin, uint64_t size) const = 0;

 protected:
  // Planes live as long as the program.
  ~StripPlanes() = default;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_PLANES_H_
