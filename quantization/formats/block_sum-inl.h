// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of several encodings, and the sum of the squares of one,
// which are not decoded to memory. Only
// quantization/formats/block_kernels_cpu.cc includes this file, once for each
// instruction set.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_
#undef QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_
#else
#define QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "quantization/formats/block_decode-inl.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_kernels_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of values whose sums stay in registers while kTermsAtOnce terms
// are added, in order: eight rows, or two blocks of the smallest size.
constexpr size_t kSumPiece = 8 * kRow;
static_assert(kSumPiece == kNibbleGroup);

// The number of terms that are read in turns. More streams overload the
// hardware: with 32 the sum took more than twice as long.
constexpr size_t kTermsAtOnce = 4;

// The distance, in bytes, of prefetches of codes ahead of the reads. Terms are
// read in turns, so a short distance in each is long in total.
constexpr size_t kSumPrefetchBytes = 2048;

// Returns the codes of row `row` of the piece at value `begin`, from `lane` on.
template <BlockFormat kFormat, class BlockDequantizer>
HWY_INLINE IntVec CodesOfRow(const char* codes, size_t begin, size_t row,
                             size_t lane) {
  if constexpr (CodeBits(kFormat) == 8) {
    const auto* const at = reinterpret_cast<const int8_t*>(codes) + begin;
    return hn::PromoteTo(Ints(),
                         hn::LoadU(SignedBytes(), at + row * kRow + lane));
  } else {
    const Words words;
    const auto packed =
        hn::LoadU(words, reinterpret_cast<const uint32_t*>(codes) +
                             begin / kSumPiece * kRow + lane);
    return UnpackedCodes<BlockDequantizer>(packed, row);
  }
}

template <BlockFormat kFormat, class BlockDequantizer, bool kSmallBlocks>
HWY_INLINE void SumPiece(int block_bits, size_t begin, size_t lane,
                         const WeightedPart* terms, size_t count, bool is_first,
                         float* sum) {
  const Floats floats;
  float* const at = sum + begin + lane;
  const auto so_far = [&](size_t row) HWY_ATTR {
    return is_first ? hn::Zero(floats) : hn::LoadU(floats, at + row * kRow);
  };
  auto sum0 = so_far(0);
  auto sum1 = so_far(1);
  auto sum2 = so_far(2);
  auto sum3 = so_far(3);
  auto sum4 = so_far(4);
  auto sum5 = so_far(5);
  auto sum6 = so_far(6);
  auto sum7 = so_far(7);
  for (size_t i = 0; i < count; ++i) {
    const WeightedPart& term = terms[i];
    const auto dequantizer = [&](size_t value) HWY_ATTR {
      return BlockDequantizer(
          LoadScale(term.part.scales + (value >> block_bits) * 2), term.weight);
    };
    const auto add = [&](const auto& block, size_t row, auto& sum) HWY_ATTR {
      sum = AddValues(block,
                      CodesOfRow<kFormat, BlockDequantizer>(term.part.codes,
                                                            begin, row, lane),
                      sum);
    };
    constexpr size_t kCodeBytes = kSumPiece * CodeBits(kFormat) / 8;
    const char* const ahead =
        term.part.codes + begin * CodeBits(kFormat) / 8 + kSumPrefetchBytes;
    for (size_t byte = 0; byte < kCodeBytes; byte += 64) {
      hwy::Prefetch(ahead + byte);
    }
    const auto low = dequantizer(begin);
    add(low, 0, sum0);
    add(low, 1, sum1);
    add(low, 2, sum2);
    add(low, 3, sum3);
    const auto high = kSmallBlocks ? dequantizer(begin + kSumPiece / 2) : low;
    add(high, 4, sum4);
    add(high, 5, sum5);
    add(high, 6, sum6);
    add(high, 7, sum7);
  }
  hn::StoreU(sum0, floats, at);
  hn::StoreU(sum1, floats, at + kRow);
  hn::StoreU(sum2, floats, at + 2 * kRow);
  hn::StoreU(sum3, floats, at + 3 * kRow);
  hn::StoreU(sum4, floats, at + 4 * kRow);
  hn::StoreU(sum5, floats, at + 5 * kRow);
  hn::StoreU(sum6, floats, at + 6 * kRow);
  hn::StoreU(sum7, floats, at + 7 * kRow);
}

// Adds `count` terms to `sum`, or writes their sum there if they are the first.
template <BlockFormat kFormat, class BlockDequantizer>
HWY_INLINE void SumTerms(size_t block_size, size_t units,
                         const WeightedPart* terms, size_t count, bool is_first,
                         float* sum) {
  const int block_bits = std::countr_zero(block_size);
  for (size_t i = 0; i < count; ++i) hwy::Prefetch(terms[i].part.scales + 64);
  for (size_t begin = 0; begin < units * kBlockUnit; begin += kSumPiece) {
    for (size_t lane = 0; lane < kRow; lane += hn::Lanes(Floats())) {
      if (block_size < kSumPiece) {
        SumPiece<kFormat, BlockDequantizer, true>(block_bits, begin, lane,
                                                  terms, count, is_first, sum);
      } else {
        SumPiece<kFormat, BlockDequantizer, false>(block_bits, begin, lane,
                                                   terms, count, is_first, sum);
      }
    }
  }
}

inline bool ShiftFitsTerms(size_t block_size, size_t units,
                           const WeightedPart* terms, size_t count) {
  const size_t blocks = units * kBlockUnit / block_size;
  return std::all_of(terms, terms + count, [&](const WeightedPart& term) {
    return ShiftFits(term.part.scales, blocks, term.weight);
  });
}

template <BlockFormat kFormat>
void SumUnits(size_t block_size, size_t units, const WeightedPart* terms,
              size_t count, float* sum) {
  for (size_t i = 0; i == 0 || i < count; i += kTermsAtOnce) {
    const WeightedPart* const some = terms + i;
    const size_t some_count = std::min(count - i, kTermsAtOnce);
    const bool is_first = i == 0;
    if constexpr (kHasShiftDequantizer<kFormat>) {
      if (HWY_LIKELY(ShiftFitsTerms(block_size, units, some, some_count))) {
        SumTerms<kFormat, ShiftDequantizer>(block_size, units, some, some_count,
                                            is_first, sum);
        continue;
      }
    }
    SumTerms<kFormat, Dequantizer<kFormat, true>>(block_size, units, some,
                                                  some_count, is_first, sum);
  }
}

// Levels are integers times a power of two. So the squares of a block's levels
// have an integer sum, and the sum of the squares of its values, in binary64,
// needs no rounding.

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

// Returns the sum of (level / kLevelUnit)^2 over the codes in `bytes` bytes of
// whole words; only the codes under `mask`, which applies to each word, count.
template <BlockFormat kFormat>
HWY_INLINE uint64_t SquaresOfCodes(const char* codes, size_t bytes,
                                   uint32_t mask) {
  using Bytes = hn::CappedTag<uint8_t, 64>;
  const Bytes all;
  const hn::Repartition<uint16_t, Bytes> halves;
  const hn::Repartition<int16_t, Bytes> signed_halves;
  const hn::Repartition<uint32_t, Bytes> words;
  const hn::Repartition<uint64_t, Bytes> sums;
  // The mask selects which of each byte's two codes count.
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

#endif  // QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_
