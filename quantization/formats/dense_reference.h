// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the formats without scales, one value at a time: the
// reference that every kernel must equal bit for bit, short enough to check by
// eye.
#ifndef QUANTIZATION_FORMATS_DENSE_REFERENCE_H_
#define QUANTIZATION_FORMATS_DENSE_REFERENCE_H_

#include <bit>
#include <cstdint>

namespace causeway {

// Returns the bfloat16 (upper half of a binary32) nearest to `value`, ties to
// even. Values beyond the largest bfloat16 become infinities, as IEEE 754
// rounds. A NaN keeps its sign and upper payload and becomes quiet.
uint16_t Bf16FromFloat(float value);

// Returns the value of a bfloat16, which is exact.
inline float FloatFromBf16(uint16_t code) {
  return std::bit_cast<float>(uint32_t{code} << 16);
}

// One step of a merge. Returns accumulator + weight * value, rounded after the
// product and after the sum (never fused), so that every machine gets the same
// bits.
float Accumulate(float accumulator, float weight, float value);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_DENSE_REFERENCE_H_
