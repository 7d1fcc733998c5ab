// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/kernels_cpu.h"

#include <cstring>

#include "quantization/formats/block_format.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/formats/ecq/reference.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/formats/ecq/kernels_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "quantization/formats/block_quantizers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE uint16_t LoadScale(const char* scales, size_t block) {
  uint16_t scale;
  std::memcpy(&scale, scales + sizeof(scale) * block, sizeof(scale));
  return scale;
}

// Equals SumOfBlockSquares() of quantization/formats/testing/block_reference.h;
// `count` is a multiple of kRow.
HWY_INLINE double SquaresOf(const float* values, size_t count) {
  using Doubles = hn::CappedTag<double, kRow / 2>;
  const Doubles doubles;
  const hn::Rebind<float, Doubles> floats;
  alignas(64) double sums[kRow];
  for (size_t lane = 0; lane < kRow; lane += hn::Lanes(doubles)) {
    auto sum = hn::Zero(doubles);
    for (size_t i = lane; i < count; i += kRow) {
      if (i % (2 * kRow) == 0) PrefetchAhead(values + i);
      const auto value = hn::PromoteTo(doubles, hn::LoadU(floats, values + i));
      sum = hn::Add(sum, hn::Mul(value, value));
    }
    hn::Store(sum, doubles, sums + lane);
  }
  for (size_t half = kRow / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

void MeasureBlocks(size_t block_size, size_t blocks, const float* values,
                   double* squares, float* absmax) {
  for (size_t block = 0; block < blocks; ++block) {
    absmax[block] = AbsMax(values + block * block_size, block_size);
    squares[block] = SquaresOf(values + block * block_size, block_size);
  }
}

void EncodeBlock(size_t block_size, float reciprocal, float offset,
                 const float* values, uint8_t* codes) {
  const Floats floats;
  const Ints ints;
  for (size_t i = 0; i < block_size; i += hn::Lanes(floats)) {
    const auto value = hn::LoadU(floats, values + i);
    const auto quotient = hn::Mul(hn::Abs(value), hn::Set(floats, reciprocal));
    const auto magnitude = hn::ConvertTo(
        ints, hn::Min(hn::Add(quotient, hn::Set(floats, offset)),
                      hn::Set(floats, static_cast<float>(kEcqTopCode))));
    // -x is the complement of x, plus 1.
    const auto sign = hn::ShiftRight<31>(hn::BitCast(ints, value));
    const auto code = hn::Sub(hn::Xor(magnitude, sign), sign);
    hn::StoreU(hn::TruncateTo(Bytes(), hn::BitCast(Words(), code)), Bytes(),
               codes + i);
  }
}

void EncodeBlocks(size_t block_size, size_t blocks, float offset,
                  const float* values, const char* scales, char* codes) {
  for (size_t block = 0; block < blocks; ++block) {
    char* const block_codes = codes + block * block_size;
    const uint16_t scale = LoadScale(scales, block);
    if (scale == 0 || scale >= kInfiniteScale) {
      std::memset(block_codes, 0, block_size);
      continue;
    }
    EncodeBlock(block_size, 1.0f / FloatFromBf16(scale), offset,
                values + block * block_size,
                reinterpret_cast<uint8_t*>(block_codes));
  }
}

template <bool kAccumulate>
HWY_INLINE void DecodeBlocksTo(size_t block_size, size_t blocks, uint8_t shift,
                               const char* scales, const char* codes,
                               float weight, float* destination) {
  const Floats floats;
  const Ints ints;
  const auto shifts = hn::Set(floats, static_cast<float>(shift) / 256);
  for (size_t block = 0; block < blocks; ++block) {
    const auto scale = hn::Set(floats, FloatFromBf16(LoadScale(scales, block)));
    for (size_t i = block * block_size; i < (block + 1) * block_size;
         i += hn::Lanes(floats)) {
      if (kAccumulate && i % kRow == 0) PrefetchAhead(destination + i);
      const auto code = hn::PromoteTo(
          ints,
          hn::LoadU(SignedBytes(), reinterpret_cast<const int8_t*>(codes) + i));
      const auto is_zero = hn::RebindMask(floats, hn::Eq(code, hn::Zero(ints)));
      const auto level = hn::IfThenZeroElse(
          is_zero, hn::Sub(hn::ConvertTo(floats, hn::Abs(code)), shifts));
      const auto sign =
          hn::BitCast(floats, hn::And(code, hn::Set(ints, INT32_MIN)));
      auto value = hn::Mul(hn::Xor(level, sign), scale);
      if (kAccumulate) {
        value = hn::Add(hn::LoadU(floats, destination + i),
                        hn::Mul(hn::Set(floats, weight), value));
      }
      hn::StoreU(value, floats, destination + i);
    }
  }
}

void DecodeBlocks(size_t block_size, size_t blocks, uint8_t shift,
                  const char* scales, const char* codes, float* values) {
  DecodeBlocksTo<false>(block_size, blocks, shift, scales, codes, 1, values);
}

void DecodeAccumulateBlocks(size_t block_size, size_t blocks, uint8_t shift,
                            const char* scales, const char* codes, float weight,
                            float* accumulator) {
  DecodeBlocksTo<true>(block_size, blocks, shift, scales, codes, weight,
                       accumulator);
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(MeasureBlocks);
HWY_EXPORT(EncodeBlocks);
HWY_EXPORT(DecodeBlocks);
HWY_EXPORT(DecodeAccumulateBlocks);

void MeasureEcqBlocks(size_t block_size, size_t blocks, const float* values,
                      double* squares, float* absmax) {
  HWY_DYNAMIC_DISPATCH(MeasureBlocks)
  (block_size, blocks, values, squares, absmax);
}

void EncodeEcqBlocks(size_t block_size, size_t blocks, float offset,
                     const float* values, const char* scales, char* codes) {
  HWY_DYNAMIC_DISPATCH(EncodeBlocks)
  (block_size, blocks, offset, values, scales, codes);
}

void DecodeEcqBlocks(size_t block_size, size_t blocks, uint8_t shift,
                     const char* scales, const char* codes, float* values) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)
  (block_size, blocks, shift, scales, codes, values);
}

void DecodeAccumulateEcqBlocks(size_t block_size, size_t blocks, uint8_t shift,
                               const char* scales, const char* codes,
                               float weight, float* accumulator) {
  HWY_DYNAMIC_DISPATCH(DecodeAccumulateBlocks)
  (block_size, blocks, shift, scales, codes, weight, accumulator);
}

}  // namespace causeway
#endif  // HWY_ONCE
