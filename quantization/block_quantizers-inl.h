// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors of values to codes, for each format of quantization/block_format.h,
// for quantization/block_kernels_cpu.cc, once for each instruction set.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_BLOCK_QUANTIZERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_BLOCK_QUANTIZERS_INL_H_
#undef QUANTIZATION_BLOCK_QUANTIZERS_INL_H_
#else
#define QUANTIZATION_BLOCK_QUANTIZERS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "quantization/block_format.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row: the values whose 4-bit codes share a position in the words of a group.
constexpr size_t kRow = 16;

using Floats = hn::CappedTag<float, kRow>;
using Ints = hn::Rebind<int32_t, Floats>;
using Words = hn::Rebind<uint32_t, Floats>;
using Bytes = hn::Rebind<uint8_t, Floats>;
using SignedBytes = hn::Rebind<int8_t, Floats>;
using FloatVec = hn::Vec<Floats>;
using IntVec = hn::Vec<Ints>;

HWY_INLINE IntVec Magnitude(IntVec bits) {
  return hn::And(bits, hn::Set(Ints(), 0x7fffffff));
}

// `magnitude` with the sign of `value` at bit kPosition.
template <int kPosition>
HWY_INLINE IntVec WithSignAt(IntVec magnitude, FloatVec value) {
  const auto bits = hn::BitCast(Words(), value);
  const auto sign = hn::BitCast(Ints(), hn::ShiftRight<31 - kPosition>(bits));
  return hn::OrAnd(magnitude, sign, hn::Set(Ints(), 1 << kPosition));
}

template <int kPosition>
HWY_INLINE IntVec WithSignUnlessZero(IntVec magnitude, FloatVec value) {
  const auto not_zero = hn::Gt(magnitude, hn::Zero(Ints()));
  return hn::IfThenElseZero(not_zero, WithSignAt<kPosition>(magnitude, value));
}

constexpr float PowerOfTwo(int exponent) {
  return std::bit_cast<float>((127 + exponent) << 23);
}

// Codes of the values of one block, one in each 32-bit lane. What lies above
// the code's bits is cut off later. `scale` is usable (see UsableScale), so
// values are finite and none needs to be clamped: the largest is at most
// (1 + 2^-8) times the top level, which rounds to the top level by itself.
template <BlockFormat kFormat>
class Quantizer;

// Nearest level 2^k * scale without a division: the exponents of magnitudes
// and of the threshold 1.5 * 2^k * scale differ by k and the significands
// decide, which is what subtracting their bits does.
template <>
class Quantizer<BlockFormat::kE3m0> {
 public:
  explicit Quantizer(float scale)
      : code0_(std::bit_cast<int32_t>(0.75f * scale) - (7 << 23)),
        zero_(std::bit_cast<int32_t>(0x1p-7f * scale) - 1) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Ints ints;
    const auto magnitude = Magnitude(hn::BitCast(ints, value));
    const auto code =
        hn::ShiftRight<23>(hn::Sub(magnitude, hn::Set(ints, code0_)));
    const auto not_zero = hn::Gt(magnitude, hn::Set(ints, zero_));
    return hn::IfThenElseZero(
        not_zero, WithSignAt<3>(hn::Max(code, hn::Set(ints, 1)), value));
  }

 private:
  const int32_t code0_;
  const int32_t zero_;
};

// Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it
// in two's complement in the lowest bits.
class IntegerQuantizer {
 public:
  explicit IntegerQuantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    return hn::BitCast(Ints(), hn::Add(quotient, hn::Set(floats, 0x1.8p23f)));
  }

 private:
  const float reciprocal_;
};
template <>
class Quantizer<BlockFormat::kInt8> : public IntegerQuantizer {
  using IntegerQuantizer::IntegerQuantizer;
};
template <>
class Quantizer<BlockFormat::kInt4> : public IntegerQuantizer {
  using IntegerQuantizer::IntegerQuantizer;
};

// Half-ways between NF4's levels, in ascending order; the 16th is not used.
struct Nf4Middles {
  constexpr Nf4Middles() {
    for (int i = 0; i < 15; ++i) {
      values[i] = (kNf4Levels[(i - 7) & 15] + kNf4Levels[(i - 6) & 15]) / 2;
    }
  }
  float values[16] = {};
};
constexpr Nf4Middles kNf4Middles;

template <>
class Quantizer<BlockFormat::kNf4> {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const auto quotient = hn::Mul(value, hn::Set(Floats(), reciprocal_));
    // Code 0 is the level that has seven below it.
    return hn::Sub(LevelsBelow(quotient), hn::Set(Ints(), 7));
  }

 private:
  static HWY_INLINE hn::Mask<Ints> AtLeast(FloatVec quotient, FloatVec middle) {
    return hn::RebindMask(Ints(), hn::Ge(quotient, middle));
  }

  static HWY_INLINE IntVec LevelsBelow(FloatVec quotient) {
    const Floats floats;
    const Ints ints;
    const float* const middles = kNf4Middles.values;
    if constexpr (HWY_MAX_BYTES >= 64) {
      // Binary search: a vector holds all half-ways.
      const auto table = hn::LoadU(floats, middles);
      const auto advance = [&](IntVec below, int step) HWY_ATTR {
        const auto at = hn::Add(below, hn::Set(ints, step - 1));
        const auto middle =
            hn::TableLookupLanes(table, hn::IndicesFromVec(floats, at));
        return hn::IfThenElse(AtLeast(quotient, middle),
                              hn::Add(below, hn::Set(ints, step)), below);
      };
      auto below = hn::IfThenElseZero(
          AtLeast(quotient, hn::Set(floats, middles[7])), hn::Set(ints, 8));
      below = advance(below, 4);
      below = advance(below, 2);
      return advance(below, 1);
    } else {
      auto below = hn::Zero(ints);
      for (int i = 0; i < 15; ++i) {
        below = hn::IfThenElse(AtLeast(quotient, hn::Set(floats, middles[i])),
                               hn::Set(ints, i + 1), below);
      }
      return below;
    }
  }

  const float reciprocal_;
};

template <>
class Quantizer<BlockFormat::kInt2> {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const Ints ints;
    const auto middle = hn::Set(floats, (kInt2Low + kInt2Top) / 2);
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    const auto minus_one_if = [&](hn::Mask<Floats> mask) HWY_ATTR {
      return hn::VecFromMask(ints, hn::RebindMask(ints, mask));
    };
    const auto below =
        hn::Add(minus_one_if(hn::Ge(quotient, hn::Neg(middle))),
                hn::Add(minus_one_if(hn::Ge(quotient, hn::Zero(floats))),
                        minus_one_if(hn::Ge(quotient, middle))));
    // Code 0 is the level that has two below it.
    return hn::Sub(hn::Set(ints, -2), below);
  }

 private:
  const float reciprocal_;
};

// Floating-point numbers of few bits, ties to even.
template <int kExponentBias, int kFractionBits, int kSignPosition>
class MinifloatQuantizer {
 public:
  explicit MinifloatQuantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const Ints ints;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    const auto magnitude = hn::Abs(quotient);
    // Denormals: adding a number whose last bit is the least denormal rounds to
    // a multiple of it.
    const auto denormal = hn::Sub(
        hn::BitCast(ints, hn::Add(magnitude, hn::Set(floats, kRounder))),
        hn::Set(ints, std::bit_cast<int32_t>(kRounder)));
    // Others: cut the fraction, to nearest even, and change the bias.
    const auto bits = hn::BitCast(ints, magnitude);
    const auto odd = hn::And(hn::ShiftRight<kCut>(bits), hn::Set(ints, 1));
    const auto rounded = hn::ShiftRight<kCut>(
        hn::Add(hn::Add(bits, hn::Set(ints, (1 << (kCut - 1)) - 1)), odd));
    const auto normal =
        hn::Sub(rounded, hn::Set(ints, (127 - kExponentBias) << kFractionBits));
    const auto is_denormal = hn::Lt(magnitude, hn::Set(floats, kLeastNormal));
    const auto code =
        hn::IfThenElse(hn::RebindMask(ints, is_denormal), denormal, normal);
    return WithSignUnlessZero<kSignPosition>(code, quotient);
  }

 private:
  static constexpr int kCut = 23 - kFractionBits;
  static constexpr float kLeastNormal = PowerOfTwo(1 - kExponentBias);
  static constexpr float kRounder = PowerOfTwo(1 - kExponentBias + kCut);

  const float reciprocal_;
};
template <>
class Quantizer<BlockFormat::kE2m1> : public MinifloatQuantizer<1, 1, 3> {
  using MinifloatQuantizer::MinifloatQuantizer;
};
template <>
class Quantizer<BlockFormat::kFp8E4m3> : public MinifloatQuantizer<7, 3, 7> {
  using MinifloatQuantizer::MinifloatQuantizer;
};

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_BLOCK_QUANTIZERS_INL_H_
