// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding as a GPU does it: EncodeValueStochastically() of
// quantization/block_reference.h, one value per call, for the device and the
// host, like quantization/cuda/block_arithmetic.h. Random numbers are those of
// quantization/philox.h. Pure functions.
#ifndef QUANTIZATION_CUDA_BLOCK_STOCHASTIC_H_
#define QUANTIZATION_CUDA_BLOCK_STOCHASTIC_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "quantization/block_format.h"
#include "quantization/cuda/block_arithmetic.h"

namespace causeway {

// A number in [0, 1).
CAUSEWAY_HOST_DEVICE inline float UniformOf(uint32_t random) {
  return static_cast<float>(random >> 8) * 0x1p-24f;
}

// The integer below, or the next with the probability of the rest.
CAUSEWAY_HOST_DEVICE inline int32_t IntegerBelowOrAbove(float quotient,
                                                        uint32_t random) {
  const float below = floorf(quotient);
  return static_cast<int32_t>(below) +
         (UniformOf(random) < quotient - below ? 1 : 0);
}

// The code of E3M0's level below or above, in magnitude.
CAUSEWAY_HOST_DEVICE inline uint32_t PowerBelowOrAbove(float quotient,
                                                       uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(quotient);
  const uint32_t magnitude_bits = bits & 0x7fffffff;
  const float magnitude = std::bit_cast<float>(magnitude_bits);
  const uint32_t denormal =
      static_cast<uint32_t>(IntegerBelowOrAbove(magnitude * 0x1p6f, random));
  // Random numbers carry into the exponent.
  const uint32_t normal = ((magnitude_bits + (random >> 9)) >> 23) - (127 - 7);
  const uint32_t code = magnitude < 0x1p-6f ? denormal : normal;
  return code == 0 ? 0 : code | (bits >> 28 & 8);
}

// Codes of the values of one block whose scale HasCodes().
template <BlockFormat kFormat>
class StochasticBlockQuantizer {
 public:
  CAUSEWAY_HOST_DEVICE explicit StochasticBlockQuantizer(float scale)
      : reciprocal_(1.0f / scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value, uint32_t random) const {
    constexpr float kTop = TopLevel(kFormat);
    constexpr uint32_t kMask = (1u << CodeBits(kFormat)) - 1;
    const float quotient = fmaxf(-kTop, fminf(value * reciprocal_, kTop));
    if constexpr (kFormat == BlockFormat::kE3m0) {
      return PowerBelowOrAbove(quotient, random);
    } else {
      return static_cast<uint32_t>(IntegerBelowOrAbove(quotient, random)) &
             kMask;
    }
  }

 private:
  float reciprocal_;
};

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_STOCHASTIC_H_
