// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Computes the sum of the squares of an encoded vector without decoding it.
// Only quantization/formats/block_kernels_cpu.cc includes this file, once for
// each instruction set. Levels are integers times a power of two. So the
// squares of a block's levels have an integer sum, and the sum of the squares
// of its values, in binary64, needs no rounding.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_FORMATS_BLOCK_SQUARES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_FORMATS_BLOCK_SQUARES_INL_H_
#undef QUANTIZATION_FORMATS_BLOCK_SQUARES_INL_H_
#else
#define QUANTIZATION_FORMATS_BLOCK_SQUARES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "quantization/formats/block_dequantizers-inl.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_kernels_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The greatest power of two of which all levels are multiples.
template <BlockFormat kFormat>
constexpr double kLevelUnit = kFormat == BlockFormat::kE3m0 ? 0x1p-6 : 1;

// The lower and the upper byte of (level / kLevelUnit)^2 for each 4-bit code.
template <BlockFormat kFormat>
struct SquaredLevels {
  constexpr SquaredLevels() {
    for (int code = 0; code < 16; ++code) {
      const double level = static_cast<double>(NibbleLevels(kFormat)[code]) /
                           kLevelUnit<kFormat>;
      const auto square = static_cast<uint32_t>(level * level);
      low[code] = static_cast<uint8_t>(square);
      high[code] = static_cast<uint8_t>(square >> 8);
    }
  }
  alignas(16) uint8_t low[16] = {};
  alignas(16) uint8_t high[16] = {};
};
template <BlockFormat kFormat>
constexpr SquaredLevels<kFormat> kSquaredLevels;

#if HWY_TARGET == HWY_SCALAR

// Returns the sum of (level / kLevelUnit)^2 over the codes in `bytes` bytes of
// whole words; only the codes under `mask`, which applies to each word, count.
template <BlockFormat kFormat>
HWY_INLINE uint64_t SquaresOfCodes(const char* codes, size_t bytes,
                                   uint32_t mask) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) {
    const uint32_t byte =
        static_cast<uint8_t>(codes[i]) & (mask >> (8 * (i % 4)) & 0xff);
    if constexpr (CodeBits(kFormat) == 8) {
      const int level = static_cast<int8_t>(byte);
      sum += static_cast<uint64_t>(level * level);
    } else {
      for (const uint32_t code : {byte & 15, byte >> 4}) {
        sum += kSquaredLevels<kFormat>.low[code] +
               256u * kSquaredLevels<kFormat>.high[code];
      }
    }
  }
  return sum;
}

#else

template <BlockFormat kFormat>
HWY_INLINE uint64_t SquaresOfCodes(const char* codes, size_t bytes,
                                   uint32_t mask) {
  using Bytes = hn::CappedTag<uint8_t, 64>;
  const Bytes all;
  const hn::Repartition<uint16_t, Bytes> halves;
  const hn::Repartition<int16_t, Bytes> signed_halves;
  const hn::Repartition<uint32_t, Bytes> words;
  const hn::Repartition<uint64_t, Bytes> sums;
  // The mask says which of each byte's two codes count.
  const auto counted = hn::BitCast(all, hn::Set(words, mask & 0x0f0f0f0f));
  auto low = hn::Zero(sums);
  auto high = hn::Zero(sums);
  for (size_t i = 0; i < bytes; i += hn::Lanes(all)) {
    const auto read =
        hn::LoadU(all, reinterpret_cast<const uint8_t*>(codes) + i);
    if constexpr (CodeBits(kFormat) == 8) {
      // These are the bytes at even and at odd places.
      const auto pairs = hn::BitCast(signed_halves, read);
      const auto odd = hn::ShiftRight<8>(pairs);
      const auto even = hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs));
      for (const auto level : {even, odd}) {
        const auto square = hn::BitCast(halves, hn::Mul(level, level));
        low = hn::Add(low, hn::SumsOf8(hn::BitCast(
                               all, hn::And(square, hn::Set(halves, 255)))));
        high = hn::Add(
            high, hn::SumsOf8(hn::BitCast(all, hn::ShiftRight<8>(square))));
      }
    } else {
      const auto bytes_read = hn::BitCast(halves, read);
      const auto lower = hn::And(read, counted);
      const auto upper =
          hn::And(hn::BitCast(all, hn::ShiftRight<4>(bytes_read)), counted);
      const auto look_up = [&](const uint8_t* bytes_of_squares) HWY_ATTR {
        const auto table = hn::LoadDup128(all, bytes_of_squares);
        const auto first = hn::TableLookupBytes(table, lower);
        const auto second = hn::TableLookupBytes(table, upper);
        // No byte is above 64.
        return hn::SumsOf8(hn::Add(first, second));
      };
      low = hn::Add(low, look_up(kSquaredLevels<kFormat>.low));
      if constexpr (kFormat == BlockFormat::kE3m0) {
        high = hn::Add(high, look_up(kSquaredLevels<kFormat>.high));
      }
    }
  }
  const auto both = hn::Add(low, hn::ShiftLeft<8>(high));
  return hn::GetLane(hn::SumOfLanes(sums, both));
}

#endif

template <BlockFormat kFormat>
double SumOfSquaresOfUnits(size_t block_size, size_t units, const char* scales,
                           const char* codes) {
  // The smallest blocks are halves of a group, in which each word has half its
  // codes.
  const bool shares_words = CodeBits(kFormat) == 4 && block_size == 64;
  double sum = 0;
  for (size_t begin = 0; begin < units * kBlockUnit; begin += block_size) {
    const double scale = static_cast<double>(LoadScale(scales));
    scales += 2;
    const size_t bytes =
        shares_words ? kNibbleGroupBytes : block_size * CodeBits(kFormat) / 8;
    const bool is_upper = shares_words && begin % kNibbleGroup != 0;
    const uint32_t mask = !shares_words ? ~0u : is_upper ? ~0u << 16 : 0xffffu;
    const double squares =
        static_cast<double>(SquaresOfCodes<kFormat>(codes, bytes, mask));
    sum += (scale * kLevelUnit<kFormat>)*(scale * kLevelUnit<kFormat>)*squares;
    if (!shares_words || is_upper) codes += bytes;
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_SQUARES_INL_H_
