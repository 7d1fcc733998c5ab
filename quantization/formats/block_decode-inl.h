// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decoding, for quantization/formats/block_kernels_cpu.cc, which alone includes
// this file, once for each instruction set.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_
#undef QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_
#else
#define QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "quantization/formats/block_dequantizers-inl.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_kernels_cpu.h"
#include "quantization/formats/block_measures-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores the values of codes, or adds them to the values at `destination`.
template <bool kAccumulate, class BlockDequantizer>
HWY_INLINE void Put(const BlockDequantizer& block, IntVec codes,
                    float* destination) {
  const Floats floats;
  const auto values =
      kAccumulate ? AddValues(block, codes, hn::LoadU(floats, destination))
                  : block.Values(codes);
  hn::StoreU(values, floats, destination);
}

// Decodes a group of 4-bit codes. `low` and `high` belong to the blocks of the
// lower and upper half of the group, which are the same block unless blocks
// have 64 values.
template <bool kAccumulate, class BlockDequantizer>
HWY_INLINE void DecodeNibbles(const char* codes, const BlockDequantizer& low,
                              const BlockDequantizer& high,
                              float* destination) {
  constexpr size_t kRows = kNibbleGroup / kRow;
  const Words words;
  const size_t lanes = hn::Lanes(words);
  for (size_t lane = 0; lane < kRow; lane += lanes) {
    const auto packed =
        hn::LoadU(words, reinterpret_cast<const uint32_t*>(codes) + lane);
    for (size_t row = 0; row < kRows; ++row) {
      Put<kAccumulate>(row < kRows / 2 ? low : high,
                       UnpackedCodes<BlockDequantizer>(packed, row),
                       destination + row * kRow + lane);
    }
  }
}

template <bool kAccumulate, class BlockDequantizer>
HWY_INLINE void DecodeBytes(const char* codes, size_t count,
                            const BlockDequantizer& dequantizer,
                            float* destination) {
  for (size_t i = 0; i < count; i += hn::Lanes(Floats())) {
    const auto code =
        hn::LoadU(SignedBytes(), reinterpret_cast<const int8_t*>(codes) + i);
    Put<kAccumulate>(dequantizer, hn::PromoteTo(Ints(), code), destination + i);
  }
}

template <BlockFormat kFormat, bool kAccumulate, class BlockDequantizer>
HWY_INLINE void DecodeUnitsBy(size_t block_size, size_t units,
                              const char* scales, const char* codes,
                              float weight, float* destination) {
  constexpr size_t kPiece = CodeBits(kFormat) == 8 ? 64 : kNibbleGroup;
  const size_t count = units * kBlockUnit;
  const int block_bits = std::countr_zero(block_size);
  for (size_t i = 0; i < count; i += kPiece) {
    // Values beyond the end are not ours: the accumulators of a tile are in the
    // cache already.
    if (kAccumulate && i + kPrefetchBytes / sizeof(float) < count) {
      for (size_t row = 0; row < kPiece; row += kRow) {
        PrefetchAhead(destination + i + row);
      }
    }
    const char* const piece = codes + i * CodeBits(kFormat) / 8;
    PrefetchAhead(piece);
    const auto dequantizer = [&](size_t offset) {
      return BlockDequantizer(
          LoadScale(scales + ((i + offset) >> block_bits) * 2), weight);
    };
    const BlockDequantizer low = dequantizer(0);
    if constexpr (CodeBits(kFormat) == 8) {
      DecodeBytes<kAccumulate>(piece, kPiece, low, destination + i);
    } else if (block_size == 64) {
      DecodeNibbles<kAccumulate>(piece, low, dequantizer(64), destination + i);
    } else {
      DecodeNibbles<kAccumulate>(piece, low, low, destination + i);
    }
  }
}

template <BlockFormat kFormat, bool kAccumulate>
void DecodeUnits(size_t block_size, size_t units, const char* scales,
                 const char* codes, float weight, float* destination) {
  if constexpr (kHasShiftDequantizer<kFormat>) {
    if (HWY_LIKELY(
            ShiftFits(scales, units * kBlockUnit / block_size, weight))) {
      return DecodeUnitsBy<kFormat, kAccumulate, ShiftDequantizer>(
          block_size, units, scales, codes, weight, destination);
    }
  }
  DecodeUnitsBy<kFormat, kAccumulate, Dequantizer<kFormat, kAccumulate>>(
      block_size, units, scales, codes, weight, destination);
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_
