// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// All formats turn the values of a strip into a plane of scales and a plane of
// codes. The codes of a format without scales are its values. The format
// decides how values become codes; encoders put the planes side by side, or
// compress the codes.
#ifndef QUANTIZATION_STRIPS_PLANES_H_
#define QUANTIZATION_STRIPS_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace causeway {

// The options that only the sender of an encoding needs: they change the codes,
// but not how to read them.
struct EncodeOptions {
  // ECQ's target. If ecq_bits is not 0, it is the rate in bits per value,
  // including everything that is sent; otherwise ecq_distortion is the mean
  // squared error relative to the mean square.
  double ecq_bits = 0;
  double ecq_distortion = 0.035;
};

// The planes of a strip or of a part of it. The pointers are to the first
// value's block and code. Parts begin at multiples of kPieceAlignment values.
struct ConstStripPart {
  const char* scales = nullptr;
  const char* codes = nullptr;
  // The StripHeader::parameter of the whole strip.
  uint8_t parameter = 0;
};
struct StripPart {
  char* scales = nullptr;
  char* codes = nullptr;
};

// A part, and the weight of its values in a sum.
struct WeightedPart {
  ConstStripPart part;
  float weight = 0;
};

// The planes of one format and block size. Thread-safe.
class StripPlanes {
 public:
  // Returns the bits of a code in the code plane. Codes of 8 and 4 bits can be
  // compressed.
  virtual uint32_t code_bits() const = 0;

  // Return the bytes of each plane of `values` values, and of both together.
  virtual uint64_t ScaleBytes(uint64_t values) const = 0;
  virtual uint64_t CodeBytes(uint64_t values) const = 0;
  uint64_t Bytes(uint64_t values) const {
    return ScaleBytes(values) + CodeBytes(values);
  }

  // Returns the rest of `part` from its value `value` on, a multiple of
  // kPieceAlignment.
  ConstStripPart PartFrom(ConstStripPart part, uint64_t value) const {
    return {.scales = part.scales + ScaleBytes(value),
            .codes = part.codes + CodeBytes(value),
            .parameter = part.parameter};
  }

  // Encodes values and returns the strip's parameter. Formats that have one
  // need the whole strip at once. `decoded`, if it is not empty, has the size
  // of `values`, may be the same memory, and receives the values that Decode()
  // will return.
  virtual uint8_t Encode(const EncodeOptions& options,
                         absl::Span<const float> values, StripPart part,
                         absl::Span<float> decoded) const = 0;

  virtual void Decode(ConstStripPart part, absl::Span<float> values) const = 0;

  // Computes sum[i] = 0 + the terms' weighted values i, in order, rounded as
  // Accumulate().
  virtual void DecodeSum(absl::Span<const WeightedPart> terms,
                         absl::Span<float> sum) const = 0;

  // The values of a tile, whose squares are summed separately.
  static constexpr uint64_t kTileValues = 4096;

  // Returns the sum of the squares of at most kTileValues values in binary64.
  // The order of additions depends only on the number of values. Decodes the
  // values unless the format has a better way.
  virtual double SumOfSquares(ConstStripPart part, uint64_t count) const;

  // Checks `count` values, which messages call values [begin, begin + count) of
  // `size`.
  //   INVALID_ARGUMENT  one of them does not decode to a finite number.
  virtual absl::Status CheckFinite(ConstStripPart part, uint64_t count,
                                   uint64_t begin, uint64_t size) const = 0;

 protected:
  // Planes exist as long as the program runs.
  ~StripPlanes() = default;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_PLANES_H_
