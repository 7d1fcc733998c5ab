// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding for the kernels of quantization/block_kernels_cpu.cc,
// which is the only file that includes it, once for each instruction set:
// EncodeValueStochastically() of quantization/block_reference.h and
// RoundingRandom() of quantization/philox.h, many at a time.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_BLOCK_STOCHASTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_BLOCK_STOCHASTIC_INL_H_
#undef QUANTIZATION_BLOCK_STOCHASTIC_INL_H_
#else
#define QUANTIZATION_BLOCK_STOCHASTIC_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "quantization/block_format.h"
#include "quantization/block_quantizers-inl.h"
#include "quantization/philox.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The random numbers of values [index, index + count) of a vector, both
// multiples of 64.
//
// Each number of a block has a 64-bit lane to itself, of which the lower half
// counts: that is what a multiplication reads, and what it leaves is the lower
// and the upper half of a product, one shift apart.
inline HWY_ATTR void FillRandom(uint64_t seed, uint64_t index, size_t count,
                                uint32_t* random) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < count; ++i)
    random[i] = RoundingRandom(seed, index + i);
#else
  using Blocks = hn::CappedTag<uint64_t, kRow / 2>;
  const Blocks blocks;
  const hn::Repartition<uint32_t, Blocks> halves;
  const hn::Rebind<uint32_t, Blocks> numbers;
  const size_t lanes = hn::Lanes(blocks);
  const auto multiply = [&](hn::Vec<Blocks> number, uint32_t by) HWY_ATTR {
    return hn::MulEven(hn::BitCast(halves, number), hn::Set(halves, by));
  };
  for (size_t i = 0; i < count / 4; i += lanes) {
    const uint64_t first = index / 4 + i;
    const auto counter = hn::Add(hn::Iota(blocks, 0), hn::Set(blocks, first));
    auto a = counter;
    auto b = hn::ShiftRight<32>(counter);
    auto c = hn::Zero(blocks);
    auto d = hn::Zero(blocks);
    uint32_t low_key = static_cast<uint32_t>(seed);
    uint32_t high_key = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const auto first_product = multiply(a, kPhiloxMultiplier0);
      const auto second_product = multiply(c, kPhiloxMultiplier1);
      a = hn::Xor(hn::ShiftRight<32>(second_product),
                  hn::Xor(b, hn::Set(blocks, low_key)));
      b = second_product;
      c = hn::Xor(hn::ShiftRight<32>(first_product),
                  hn::Xor(d, hn::Set(blocks, high_key)));
      d = first_product;
      low_key += kPhiloxKeyStep0;
      high_key += kPhiloxKeyStep1;
    }
    uint32_t* const to = random + i / kRow * 64 + i % kRow;
    hn::StoreU(hn::TruncateTo(numbers, a), numbers, to);
    hn::StoreU(hn::TruncateTo(numbers, b), numbers, to + kRow);
    hn::StoreU(hn::TruncateTo(numbers, c), numbers, to + 2 * kRow);
    hn::StoreU(hn::TruncateTo(numbers, d), numbers, to + 3 * kRow);
  }
#endif
}

// Numbers in [0, 1).
HWY_INLINE FloatVec Uniform(hn::Vec<Words> random) {
  const auto integer = hn::BitCast(Ints(), hn::ShiftRight<8>(random));
  return hn::Mul(hn::ConvertTo(Floats(), integer), hn::Set(Floats(), 0x1p-24f));
}

// The integer below, or the next with the probability of the rest.
HWY_INLINE IntVec IntegerBelowOrAbove(FloatVec quotient,
                                      hn::Vec<Words> random) {
  const Ints ints;
  const auto below = hn::Floor(quotient);
  const auto goes_up = hn::Lt(Uniform(random), hn::Sub(quotient, below));
  return hn::Sub(hn::ConvertTo(ints, below),
                 hn::VecFromMask(ints, hn::RebindMask(ints, goes_up)));
}

// Codes of the values of one block, one in each 32-bit lane, as Quantizer. The
// scale is usable, or the values were changed so that they are finite.
template <BlockFormat kFormat>
class StochasticQuantizerBase {
 public:
  explicit StochasticQuantizerBase(float scale) : reciprocal_(1.0f / scale) {}

 protected:
  HWY_INLINE FloatVec Quotient(FloatVec value) const {
    const Floats floats;
    const auto top = hn::Set(floats, TopLevel(kFormat));
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    return hn::Max(hn::Neg(top), hn::Min(quotient, top));
  }

 private:
  const float reciprocal_;
};

template <BlockFormat kFormat>
class StochasticQuantizer;

template <BlockFormat kFormat>
class StochasticIntegerQuantizer : public StochasticQuantizerBase<kFormat> {
 public:
  using StochasticQuantizerBase<kFormat>::StochasticQuantizerBase;

  HWY_INLINE IntVec Codes(FloatVec value, hn::Vec<Words> random) const {
    return IntegerBelowOrAbove(this->Quotient(value), random);
  }
};
template <>
class StochasticQuantizer<BlockFormat::kInt8>
    : public StochasticIntegerQuantizer<BlockFormat::kInt8> {
  using StochasticIntegerQuantizer::StochasticIntegerQuantizer;
};
template <>
class StochasticQuantizer<BlockFormat::kInt4>
    : public StochasticIntegerQuantizer<BlockFormat::kInt4> {
  using StochasticIntegerQuantizer::StochasticIntegerQuantizer;
};

// Steps up from the least level, whose code is kLeast, modulo the levels.
template <BlockFormat kFormat, int kLeast>
class StochasticLevelQuantizer : public StochasticQuantizerBase<kFormat> {
 public:
  using StochasticQuantizerBase<kFormat>::StochasticQuantizerBase;

  HWY_INLINE IntVec Codes(FloatVec value, hn::Vec<Words> random) const {
    constexpr int kLevels = 1 << CodeBits(kFormat);
    const Floats floats;
    const Ints ints;
    const auto quotient = this->Quotient(value);
    const auto uniform = Uniform(random);
    auto code = hn::Set(ints, kLeast);
    for (int i = 0; i + 1 < kLevels; ++i) {
      const float low = NibbleLevels(kFormat)[(kLeast + i) & (kLevels - 1)];
      const float high =
          NibbleLevels(kFormat)[(kLeast + i + 1) & (kLevels - 1)];
      const auto above = hn::Gt(hn::Sub(quotient, hn::Set(floats, low)),
                                hn::Mul(uniform, hn::Set(floats, high - low)));
      code = hn::Sub(code, hn::VecFromMask(ints, hn::RebindMask(ints, above)));
    }
    return code;
  }
};
template <>
class StochasticQuantizer<BlockFormat::kNf4>
    : public StochasticLevelQuantizer<BlockFormat::kNf4, -7> {
  using StochasticLevelQuantizer::StochasticLevelQuantizer;
};
template <>
class StochasticQuantizer<BlockFormat::kInt2>
    : public StochasticLevelQuantizer<BlockFormat::kInt2, -2> {
  using StochasticLevelQuantizer::StochasticLevelQuantizer;
};

template <BlockFormat kFormat, int kExponentBias, int kFractionBits,
          int kSignPosition>
class StochasticMinifloatQuantizer : public StochasticQuantizerBase<kFormat> {
 public:
  using StochasticQuantizerBase<kFormat>::StochasticQuantizerBase;

  HWY_INLINE IntVec Codes(FloatVec value, hn::Vec<Words> random) const {
    const Floats floats;
    const Ints ints;
    const auto quotient = this->Quotient(value);
    const auto magnitude = hn::Abs(quotient);
    const auto denormal = IntegerBelowOrAbove(
        hn::Mul(magnitude, hn::Set(floats, kLeastLevelsPerUnit)), random);
    const auto carry = hn::BitCast(ints, hn::ShiftRight<32 - kCut>(random));
    const auto cut =
        hn::ShiftRight<kCut>(hn::Add(hn::BitCast(ints, magnitude), carry));
    const auto normal =
        hn::Sub(cut, hn::Set(ints, (127 - kExponentBias) << kFractionBits));
    const auto is_denormal = hn::Lt(magnitude, hn::Set(floats, kLeastNormal));
    const auto code =
        hn::IfThenElse(hn::RebindMask(ints, is_denormal), denormal, normal);
    return WithSignUnlessZero<kSignPosition>(code, quotient);
  }

 private:
  static constexpr int kCut = 23 - kFractionBits;
  static constexpr float kLeastNormal = PowerOfTwo(1 - kExponentBias);
  static constexpr float kLeastLevelsPerUnit =
      PowerOfTwo(kExponentBias + kFractionBits - 1);
};
template <>
class StochasticQuantizer<BlockFormat::kE2m1>
    : public StochasticMinifloatQuantizer<BlockFormat::kE2m1, 1, 1, 3> {
  using StochasticMinifloatQuantizer::StochasticMinifloatQuantizer;
};
template <>
class StochasticQuantizer<BlockFormat::kFp8E4m3>
    : public StochasticMinifloatQuantizer<BlockFormat::kFp8E4m3, 7, 3, 7> {
  using StochasticMinifloatQuantizer::StochasticMinifloatQuantizer;
};
template <>
class StochasticQuantizer<BlockFormat::kE3m0>
    : public StochasticMinifloatQuantizer<BlockFormat::kE3m0, 7, 0, 3> {
  using StochasticMinifloatQuantizer::StochasticMinifloatQuantizer;
};

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_BLOCK_STOCHASTIC_INL_H_
