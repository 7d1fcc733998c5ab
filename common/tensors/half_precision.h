// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit floating-point types of checkpoints and of other trainers'
// parameters: bfloat16, and IEEE 754 binary16 ("F16").
#ifndef COMMON_TENSORS_HALF_PRECISION_H_
#define COMMON_TENSORS_HALF_PRECISION_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace causeway {

// The smallest value that rounds to 2^16, which F16 lacks, and not to 65504,
// its largest value. It is half-way, and the tie goes to the even one, 2^16.
inline constexpr float kTooLargeForF16 = 65520;

inline float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Moves sign, exponent and fraction to their places in binary32, and corrects
// the exponent's bias. Subnormal numbers are multiples of 2^-24; they never are
// subnormal here, because the calling thread may take such numbers for zero.
// Values that are not finite become infinities.
inline float FromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fff;
  float value = std::bit_cast<float>((magnitude << 13) + (112u << 23));
  if (magnitude < 0x400) value = static_cast<float>(magnitude) * 0x1p-24f;
  if (magnitude >= 0x7c00) value = std::bit_cast<float>(0x7f800000);
  return std::copysign(value, bits & 0x8000 ? -1.0f : 1.0f);
}

// Both round to nearest, ties to even. `value` is finite, and in ToF16 less
// than kTooLargeForF16 in magnitude.
inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint16_t ToF16(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 16 & 0x8000;
  const float magnitude = std::fabs(value);
  uint32_t bits = 0;
  if (magnitude < 0x1p-14f) {
    // Subnormal: the sum has F16's smallest step, so the addition rounds.
    bits = std::bit_cast<uint32_t>(magnitude + 0.5f) -
           std::bit_cast<uint32_t>(0.5f);
  } else {
    bits = std::bit_cast<uint32_t>(magnitude);
    bits = (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | bits);
}

}  // namespace causeway

#endif  // COMMON_TENSORS_HALF_PRECISION_H_
