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
#include <utility>

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

// Codes of the values of one block whose scale HasCodes().
template <BlockFormat kFormat>
class StochasticBlockQuantizerBase {
 public:
  CAUSEWAY_HOST_DEVICE explicit StochasticBlockQuantizerBase(float scale)
      : reciprocal_(1.0f / scale) {}

 protected:
  CAUSEWAY_HOST_DEVICE float Quotient(float value) const {
    constexpr float kTop = TopLevel(kFormat);
    const float quotient = value * reciprocal_;
    return fmaxf(-kTop, fminf(quotient, kTop));
  }

 private:
  float reciprocal_;
};

template <BlockFormat kFormat>
class StochasticBlockQuantizer;

template <BlockFormat kFormat>
class StochasticIntegerBlockQuantizer
    : public StochasticBlockQuantizerBase<kFormat> {
 public:
  using StochasticBlockQuantizerBase<kFormat>::StochasticBlockQuantizerBase;

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value, uint32_t random) const {
    constexpr uint32_t kMask = (1u << CodeBits(kFormat)) - 1;
    return static_cast<uint32_t>(
               IntegerBelowOrAbove(this->Quotient(value), random)) &
           kMask;
  }
};
template <>
class StochasticBlockQuantizer<BlockFormat::kInt8>
    : public StochasticIntegerBlockQuantizer<BlockFormat::kInt8> {
  using StochasticIntegerBlockQuantizer::StochasticIntegerBlockQuantizer;
};
template <>
class StochasticBlockQuantizer<BlockFormat::kInt4>
    : public StochasticIntegerBlockQuantizer<BlockFormat::kInt4> {
  using StochasticIntegerBlockQuantizer::StochasticIntegerBlockQuantizer;
};

// Steps up from the least level, whose code is kLeast, modulo the levels.
template <BlockFormat kFormat, int kLeast>
class StochasticLevelBlockQuantizer
    : public StochasticBlockQuantizerBase<kFormat> {
 public:
  using StochasticBlockQuantizerBase<kFormat>::StochasticBlockQuantizerBase;

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value, uint32_t random) const {
    return (kLeast + StepsUp(this->Quotient(value), UniformOf(random),
                             std::make_integer_sequence<int, kMask>())) &
           kMask;
  }

 private:
  static constexpr int kMask = (1 << CodeBits(kFormat)) - 1;

  // Levels are constants of the code: the device has no tables of the host.
  template <int kStep>
  CAUSEWAY_HOST_DEVICE static int IsAbove(float quotient, float uniform) {
    constexpr float kLow = NibbleLevels(kFormat)[(kLeast + kStep) & kMask];
    constexpr float kHigh = NibbleLevels(kFormat)[(kLeast + kStep + 1) & kMask];
    constexpr float kGap = kHigh - kLow;
    return quotient - kLow > uniform * kGap ? 1 : 0;
  }

  template <int... kSteps>
  CAUSEWAY_HOST_DEVICE static int StepsUp(
      float quotient, float uniform, std::integer_sequence<int, kSteps...>) {
    return (IsAbove<kSteps>(quotient, uniform) + ...);
  }
};
template <>
class StochasticBlockQuantizer<BlockFormat::kNf4>
    : public StochasticLevelBlockQuantizer<BlockFormat::kNf4, -7> {
  using StochasticLevelBlockQuantizer::StochasticLevelBlockQuantizer;
};
template <>
class StochasticBlockQuantizer<BlockFormat::kInt2>
    : public StochasticLevelBlockQuantizer<BlockFormat::kInt2, -2> {
  using StochasticLevelBlockQuantizer::StochasticLevelBlockQuantizer;
};

template <BlockFormat kFormat, int kExponentBias, int kFractionBits,
          int kSignPosition>
class StochasticMinifloatBlockQuantizer
    : public StochasticBlockQuantizerBase<kFormat> {
 public:
  using StochasticBlockQuantizerBase<kFormat>::StochasticBlockQuantizerBase;

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value, uint32_t random) const {
    constexpr int kCut = 23 - kFractionBits;
    constexpr float kLeastNormal =
        std::bit_cast<float>((127 + 1 - kExponentBias) << 23);
    constexpr float kLeastLevelsPerUnit =
        std::bit_cast<float>((127 + kExponentBias + kFractionBits - 1) << 23);
    const uint32_t bits = std::bit_cast<uint32_t>(this->Quotient(value));
    const uint32_t magnitude_bits = bits & 0x7fffffff;
    const float magnitude = std::bit_cast<float>(magnitude_bits);
    const uint32_t denormal = static_cast<uint32_t>(
        IntegerBelowOrAbove(magnitude * kLeastLevelsPerUnit, random));
    const uint32_t normal =
        ((magnitude_bits + (random >> (32 - kCut))) >> kCut) -
        ((127 - kExponentBias) << kFractionBits);
    const uint32_t code = magnitude < kLeastNormal ? denormal : normal;
    const uint32_t sign = bits >> (31 - kSignPosition) & (1u << kSignPosition);
    return code == 0 ? 0 : code | sign;
  }
};
template <>
class StochasticBlockQuantizer<BlockFormat::kE2m1>
    : public StochasticMinifloatBlockQuantizer<BlockFormat::kE2m1, 1, 1, 3> {
  using StochasticMinifloatBlockQuantizer::StochasticMinifloatBlockQuantizer;
};
template <>
class StochasticBlockQuantizer<BlockFormat::kFp8E4m3>
    : public StochasticMinifloatBlockQuantizer<BlockFormat::kFp8E4m3, 7, 3, 7> {
  using StochasticMinifloatBlockQuantizer::StochasticMinifloatBlockQuantizer;
};
template <>
class StochasticBlockQuantizer<BlockFormat::kE3m0>
    : public StochasticMinifloatBlockQuantizer<BlockFormat::kE3m0, 7, 0, 3> {
  using StochasticMinifloatBlockQuantizer::StochasticMinifloatBlockQuantizer;
};

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_STOCHASTIC_H_
