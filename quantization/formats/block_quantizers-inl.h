// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns vectors of values into codes, for each format of
// quantization/formats/block_format.h, and measures blocks for their scales.
// Several kernels include this file, once for each instruction set.

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

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_QUANTIZERS_INL_H_
