// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns vectors of values into codes, for each format of
// quantization/formats/block_format.h, to the nearest level or stochastically,
// and measures blocks for their scales. Several kernels include this file, once
// for each instruction set.
//
// Stochastic rounding equals EncodeValueStochastically() of
// quantization/formats/testing/block_reference.h and RoundingRandom() of
// quantization/formats/philox.h, for many values at a time.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_
#undef QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_
#else
#define QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/philox.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row has the values whose 4-bit codes share a position in the words of a
// group.
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

// Returns `magnitude` with the sign of `value` at bit 3.
HWY_INLINE IntVec WithSign(IntVec magnitude, FloatVec value) {
  const auto bits = hn::BitCast(Words(), value);
  const auto sign = hn::BitCast(Ints(), hn::ShiftRight<28>(bits));
  return hn::OrAnd(magnitude, sign, hn::Set(Ints(), 8));
}

// Encodes values of one block, one in each 32-bit lane. The bits above a code
// are cut off later. `scale` is usable (see UsableScale), so values are finite
// and need no clamping: the largest is at most (1 + 2^-8) times the top level,
// which rounds to the top level by itself.
//
// This is for formats whose levels are integers. Adding 1.5 * 2^23 rounds to
// the nearest integer, ties to even, and leaves it in two's complement in the
// lowest bits.
template <BlockFormat kFormat>
class Quantizer {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    return hn::BitCast(Ints(), hn::Add(quotient, hn::Set(floats, 0x1.8p23f)));
  }

 private:
  const float reciprocal_;
};

// Finds the nearest level 2^k * scale without a division, by the thresholds
// 1.5 * 2^k * scale. Subtracting the bits of one from those of a magnitude
// subtracts their exponents, and borrows 1 if the magnitude has the smaller
// significand.
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
    return hn::IfThenElseZero(not_zero,
                              WithSign(hn::Max(code, hn::Set(ints, 1)), value));
  }

 private:
  const int32_t code0_;
  const int32_t zero_;
};

// The distance, in bytes, of prefetches ahead of the reads, which is further
// than the hardware's. Among 0, 1, 2, 4 and 8 KiB, 8 was fastest. Prefetching
// beyond the end of an array is harmless.
//
// Encoders read a block twice, from memory and then from the cache. Each pass
// prefetches half of the lines, so that memory is never idle.
constexpr size_t kPrefetchBytes = 8192;

HWY_INLINE void PrefetchAhead(const void* address) {
  hwy::Prefetch(static_cast<const char*>(address) + kPrefetchBytes);
}

// Returns the bits of the largest magnitude. By their order, NaN is above
// infinity.
HWY_INLINE float AbsMax(const float* values, size_t count) {
  const Ints ints;
  auto even = hn::Zero(ints);
  auto odd = hn::Zero(ints);
  for (size_t i = 0; i < count; i += 2 * kRow) {
    PrefetchAhead(values + i);
    for (size_t lane = 0; lane < kRow; lane += hn::Lanes(ints)) {
      const float* const at = values + i + lane;
      const auto first = hn::LoadU(Floats(), at);
      const auto second = hn::LoadU(Floats(), at + kRow);
      even = hn::Max(even, Magnitude(hn::BitCast(ints, first)));
      odd = hn::Max(odd, Magnitude(hn::BitCast(ints, second)));
    }
  }
  const auto largest = hn::MaxOfLanes(ints, hn::Max(even, odd));
  return std::bit_cast<float>(hn::GetLane(largest));
}

// Writes the random numbers of values [index, index + count) of a vector;
// `index` and `count` are multiples of 64.
//
// Each number of a block has a 64-bit lane, of which only the lower half
// counts. A multiplication reads just this half, and leaves the lower and the
// upper half of a product one shift apart.
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

// Returns numbers in [0, 1).
HWY_INLINE FloatVec Uniform(hn::Vec<Words> random) {
  const auto integer = hn::BitCast(Ints(), hn::ShiftRight<8>(random));
  return hn::Mul(hn::ConvertTo(Floats(), integer), hn::Set(Floats(), 0x1p-24f));
}

// Returns the integer below, or the next one with a probability equal to the
// fraction.
HWY_INLINE IntVec IntegerBelowOrAbove(FloatVec quotient,
                                      hn::Vec<Words> random) {
  const Ints ints;
  const auto below = hn::Floor(quotient);
  const auto goes_up = hn::Lt(Uniform(random), hn::Sub(quotient, below));
  return hn::Sub(hn::ConvertTo(ints, below),
                 hn::VecFromMask(ints, hn::RebindMask(ints, goes_up)));
}

// Returns the code of the level of E3M0 below or above, in magnitude.
HWY_INLINE IntVec PowerBelowOrAbove(FloatVec quotient, hn::Vec<Words> random) {
  const Floats floats;
  const Ints ints;
  const auto magnitude = hn::Abs(quotient);
  const auto denormal =
      IntegerBelowOrAbove(hn::Mul(magnitude, hn::Set(floats, 0x1p6f)), random);
  // The random bits carry into the exponent.
  const auto carry = hn::BitCast(ints, hn::ShiftRight<9>(random));
  const auto normal =
      hn::Sub(hn::ShiftRight<23>(hn::Add(hn::BitCast(ints, magnitude), carry)),
              hn::Set(ints, 127 - 7));
  const auto is_denormal = hn::Lt(magnitude, hn::Set(floats, 0x1p-6f));
  const auto code =
      hn::IfThenElse(hn::RebindMask(ints, is_denormal), denormal, normal);
  return hn::IfThenElseZero(hn::Gt(code, hn::Zero(ints)),
                            WithSign(code, quotient));
}

// Encodes values of one block, one in each 32-bit lane, as Quantizer does. The
// scale is usable, or the values were changed so that they are finite.
template <BlockFormat kFormat>
class StochasticQuantizer {
 public:
  explicit StochasticQuantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value, hn::Vec<Words> random) const {
    const Floats floats;
    const auto top = hn::Set(floats, TopLevel(kFormat));
    const auto quotient =
        hn::Max(hn::Neg(top),
                hn::Min(hn::Mul(value, hn::Set(floats, reciprocal_)), top));
    if constexpr (kFormat == BlockFormat::kE3m0) {
      return PowerBelowOrAbove(quotient, random);
    } else {
      return IntegerBelowOrAbove(quotient, random);
    }
  }

 private:
  const float reciprocal_;
};

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_
