// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns codes into values, for each format of
// quantization/formats/block_format.h. Only
// quantization/formats/block_kernels_cpu.cc includes this file, once for each
// instruction set.

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
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_kernels_cpu.h"
#include "quantization/formats/block_quantizers-inl.h"
#include "quantization/formats/dense_reference.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float LoadScale(const char* scale) {
  uint16_t code;
  std::memcpy(&code, scale, sizeof(code));
  return FloatFromBf16(code);
}

// Returns indices for table look-ups, which ignore the bits above an index.
HWY_INLINE auto TableIndices(IntVec codes) {
#if HWY_IS_DEBUG_BUILD
  constexpr int kEntries = HWY_MAX_BYTES / sizeof(float) - 1;
  codes = hn::And(codes, hn::Set(Ints(), kEntries));
#endif
  return hn::IndicesFromVec(Floats(), codes);
}

// The bits of a lane that contain a code; the other bits are unspecified.
enum class CodesIn { kLowestBits, kHighestBits };

// Returns the level of an E3M0 code in the highest bits of a lane, times
// 2^-120. The sign and code of 2^(code - 7) are also the sign and exponent of
// 2^(code - 127), or zero.
HWY_INLINE FloatVec SmallE3m0Level(IntVec codes) {
  return hn::And(hn::BitCast(Floats(), hn::ShiftRight<5>(codes)),
                 hn::BitCast(Floats(), hn::Set(Words(), 0x83800000u)));
}

// Returns weight * (level(code) * scale) for the codes of one block; without
// kWeighted, level(code) * scale.
template <BlockFormat kFormat, bool kWeighted>
class ScalarDequantizer {
 public:
  static constexpr CodesIn kCodesIn =
      CodeBits(kFormat) == 8 ? CodesIn::kLowestBits : CodesIn::kHighestBits;

  ScalarDequantizer(float scale, float weight)
      : scale_(scale), weight_(weight) {}

  // Returns the values of codes; 8-bit codes are -128 .. 127.
  HWY_INLINE FloatVec Values(IntVec codes) const {
    const Floats floats;
    const auto value = hn::Mul(Level(codes), hn::Set(floats, scale_));
    return kWeighted ? hn::Mul(hn::Set(floats, weight_), value) : value;
  }

 private:
  static HWY_INLINE FloatVec Level(IntVec codes) {
    const Floats floats;
    if constexpr (kFormat == BlockFormat::kInt8) {
      return hn::ConvertTo(floats, codes);
    } else if constexpr (kFormat == BlockFormat::kInt4) {
      return hn::ConvertTo(floats, hn::ShiftRight<28>(codes));
    } else {
      return hn::Mul(SmallE3m0Level(codes), hn::Set(floats, 0x1p120f));
    }
  }

  const float scale_;
  const float weight_;
};

// Computes the same for 4-bit codes, from a table of all values of the block in
// one vector. Multiplying the table rounds as multiplying each value does.
template <BlockFormat kFormat, bool kWeighted>
class TableDequantizer {
 public:
  static constexpr CodesIn kCodesIn = CodesIn::kLowestBits;

  TableDequantizer(float scale, float weight) {
    const Floats floats;
    auto scaled = hn::Mul(hn::LoadU(floats, NibbleLevels(kFormat)),
                          hn::Set(floats, scale));
    if (kWeighted) scaled = hn::Mul(hn::Set(floats, weight), scaled);
    hn::Store(scaled, floats, table_);
  }

  HWY_INLINE FloatVec Values(IntVec codes) const {
    return hn::TableLookupLanes(hn::Load(Floats(), table_),
                                TableIndices(codes));
  }

 private:
  alignas(64) float table_[16];
};

template <BlockFormat kFormat>
constexpr bool kHasTable = HWY_MAX_BYTES >= 64 && CodeBits(kFormat) == 4;

template <BlockFormat kFormat, bool kWeighted>
using Dequantizer =
    std::conditional_t<kHasTable<kFormat>, TableDequantizer<kFormat, kWeighted>,
                       ScalarDequantizer<kFormat, kWeighted>>;

// Is true if ShiftDequantizer, where it fits, is faster than Dequantizer.
template <BlockFormat kFormat>
constexpr bool kHasShiftDequantizer =
    kFormat == BlockFormat::kE3m0 && !kHasTable<kFormat>;

// Decodes kE3m0 with one multiplication, whose product is exact and so not
// rounded before it is added to a sum.
class ShiftDequantizer {
 public:
  static constexpr CodesIn kCodesIn = CodesIn::kHighestBits;

  // Returns whether the factor and all values are 0 or normal numbers.
  static bool Fits(float scale, float weight) {
    const float product = weight * scale;
    return product == 0 || (product >= 0x1p-119f && product < 0x1p7f);
  }

  ShiftDequantizer(float scale, float weight)
      : factor_(weight * scale * 0x1p120f) {}

  HWY_INLINE FloatVec Values(IntVec codes) const {
    return hn::Mul(SmallE3m0Level(codes), hn::Set(Floats(), factor_));
  }

  HWY_INLINE FloatVec AddTo(FloatVec sum, IntVec codes) const {
    return hn::MulAdd(SmallE3m0Level(codes), hn::Set(Floats(), factor_), sum);
  }

 private:
  const float factor_;
};

// Returns `sum` plus the values of codes.
template <class BlockDequantizer>
HWY_INLINE FloatVec AddValues(const BlockDequantizer& block, IntVec codes,
                              FloatVec sum) {
  if constexpr (requires { block.AddTo(sum, codes); }) {
    return block.AddTo(sum, codes);
  } else {
    return hn::Add(sum, block.Values(codes));
  }
}

// Returns the 4-bit codes at position `position` of `packed`, in the bits that
// BlockDequantizer takes.
template <class BlockDequantizer>
HWY_INLINE IntVec UnpackedCodes(hn::Vec<Words> packed, size_t position) {
  const int right = static_cast<int>(4 * position);
  return hn::BitCast(Ints(), BlockDequantizer::kCodesIn == CodesIn::kHighestBits
                                 ? hn::ShiftLeftSame(packed, 28 - right)
                                 : hn::ShiftRightSame(packed, right));
}

// Returns whether ShiftDequantizer fits all blocks with these scales.
inline bool ShiftFits(const char* scales, size_t blocks, float weight) {
  bool fits = true;
  for (size_t i = 0; i < blocks; ++i) {
    fits &= ShiftDequantizer::Fits(LoadScale(scales + 2 * i), weight);
  }
  return fits;
}

// Decodes a group of 4-bit codes. `low` and `high` belong to the blocks of the
// lower and upper half of the group, which are the same block unless blocks
// have 64 values.
template <class BlockDequantizer>
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
      const BlockDequantizer& block = row < kRows / 2 ? low : high;
      hn::StoreU(block.Values(UnpackedCodes<BlockDequantizer>(packed, row)),
                 Floats(), destination + row * kRow + lane);
    }
  }
}

template <class BlockDequantizer>
HWY_INLINE void DecodeBytes(const char* codes, size_t count,
                            const BlockDequantizer& dequantizer,
                            float* destination) {
  for (size_t i = 0; i < count; i += hn::Lanes(Floats())) {
    const auto code =
        hn::LoadU(SignedBytes(), reinterpret_cast<const int8_t*>(codes) + i);
    hn::StoreU(dequantizer.Values(hn::PromoteTo(Ints(), code)), Floats(),
               destination + i);
  }
}

template <BlockFormat kFormat, class BlockDequantizer>
HWY_INLINE void DecodeUnitsBy(size_t block_size, size_t units,
                              const char* scales, const char* codes,
                              float* destination) {
  constexpr size_t kPiece = CodeBits(kFormat) == 8 ? 64 : kNibbleGroup;
  const size_t count = units * kBlockUnit;
  const int block_bits = std::countr_zero(block_size);
  for (size_t i = 0; i < count; i += kPiece) {
    const char* const piece = codes + i * CodeBits(kFormat) / 8;
    PrefetchAhead(piece);
    const auto dequantizer = [&](size_t offset) {
      return BlockDequantizer(
          LoadScale(scales + ((i + offset) >> block_bits) * 2), 1);
    };
    const BlockDequantizer low = dequantizer(0);
    if constexpr (CodeBits(kFormat) == 8) {
      DecodeBytes(piece, kPiece, low, destination + i);
    } else if (block_size == 64) {
      DecodeNibbles(piece, low, dequantizer(64), destination + i);
    } else {
      DecodeNibbles(piece, low, low, destination + i);
    }
  }
}

template <BlockFormat kFormat>
void DecodeUnits(size_t block_size, size_t units, const char* scales,
                 const char* codes, float* destination) {
  if constexpr (kHasShiftDequantizer<kFormat>) {
    if (HWY_LIKELY(ShiftFits(scales, units * kBlockUnit / block_size, 1))) {
      return DecodeUnitsBy<kFormat, ShiftDequantizer>(block_size, units, scales,
                                                      codes, destination);
    }
  }
  DecodeUnitsBy<kFormat, Dequantizer<kFormat, false>>(block_size, units, scales,
                                                      codes, destination);
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_DECODE_INL_H_
