// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of several encodings, for
// quantization/formats/block_kernels_cpu.cc, which alone includes this file,
// once for each instruction set. Sums stay in registers until all terms have
// been added, in order.

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
#include "quantization/formats/block_dequantizers-inl.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_kernels_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of values whose sums are in registers at once: eight rows, or two
// blocks of the smallest size.
constexpr size_t kSumPiece = 8 * kRow;
static_assert(kSumPiece == kNibbleGroup);

// The number of terms that are read in turns. More streams are too many for the
// hardware: with 32 the sum took more than twice as long.
constexpr size_t kTermsAtOnce = 4;

// The distance, in bytes, of prefetches of codes ahead of the reads. Many terms
// are read in turns, so a short distance in each of them is long in total.
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
    if constexpr (kHasShiftDequantizer<kFormat>) {
      if (HWY_LIKELY(ShiftFitsTerms(block_size, units, some, some_count))) {
        SumTerms<kFormat, ShiftDequantizer>(block_size, units, some, some_count,
                                            i == 0, sum);
        continue;
      }
    }
    SumTerms<kFormat, Dequantizer<kFormat, true>>(block_size, units, some,
                                                  some_count, i == 0, sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_SUM_INL_H_
