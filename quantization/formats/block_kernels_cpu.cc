// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/block_kernels_cpu.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quantization/formats/dense_reference.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/formats/block_kernels_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "quantization/formats/block_decode-inl.h"
#include "quantization/formats/block_quantizers-inl.h"
#include "quantization/formats/block_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kRowsOfGroup = kNibbleGroup / kRow;

struct NoDecoded {
  HWY_INLINE void Put(size_t, IntVec) const {}
};

// Writes the values that the codes of a group will decode to.
template <class BlockDequantizer>
struct DecodedGroup {
  HWY_INLINE void Put(size_t i, IntVec codes) const {
    if (BlockDequantizer::kCodesIn == CodesIn::kHighestBits) {
      codes = hn::ShiftLeft<28>(codes);
    }
    const auto& block = i < kNibbleGroup / 2 ? low : high;
    hn::StoreU(block.Values(codes), Floats(), destination + i);
  }

  const BlockDequantizer low;
  const BlockDequantizer high;
  float* const destination;
};

// Encodes a group of values to 4-bit codes. `low` and `high` belong to the
// blocks of the lower and upper half of the group, which are the same block
// unless blocks have 64 values.
template <BlockFormat kFormat, typename Decoded>
HWY_INLINE void EncodeNibbles(const float* values,
                              const Quantizer<kFormat>& low,
                              const Quantizer<kFormat>& high, char* codes,
                              const Decoded& decoded) {
  const Words words;
  const size_t lanes = hn::Lanes(words);
  for (size_t lane = 0; lane < kRow; lane += lanes) {
    auto packed = hn::Zero(words);
    for (size_t row = 0; row < kRowsOfGroup; ++row) {
      const Quantizer<kFormat>& quantizer = row < kRowsOfGroup / 2 ? low : high;
      if (row % 2 == 1 && lane == 0) PrefetchAhead(values + row * kRow);
      const auto codes_of_row =
          quantizer.Codes(hn::LoadU(Floats(), values + row * kRow + lane));
      decoded.Put(row * kRow + lane, codes_of_row);
      const auto code = hn::BitCast(words, codes_of_row);
      packed =
          hn::OrAnd(packed, hn::ShiftLeftSame(code, static_cast<int>(4 * row)),
                    hn::Set(words, 15u << (4 * row)));
    }
    hn::StoreU(packed, words, reinterpret_cast<uint32_t*>(codes) + lane);
  }
}

template <BlockFormat kFormat>
HWY_INLINE void EncodeBytes(const float* values, size_t count,
                            const Quantizer<kFormat>& quantizer, char* codes) {
  for (size_t i = 0; i < count; i += hn::Lanes(Floats())) {
    if (i % (2 * kRow) == kRow) PrefetchAhead(values + i);
    const auto code = quantizer.Codes(hn::LoadU(Floats(), values + i));
    hn::StoreU(hn::TruncateTo(Bytes(), hn::BitCast(Words(), code)), Bytes(),
               reinterpret_cast<uint8_t*>(codes) + i);
  }
}

// Returns whether values of a block with this scale can be encoded as they are.
HWY_INLINE bool UsableScale(BlockFormat format, uint16_t scale) {
  return scale != 0 && scale < LargestScale(format);
}

// Decodes codes before they leave the registers.
template <BlockFormat kFormat>
using EncodersDequantizer =
    std::conditional_t<kHasShiftDequantizer<kFormat>, ShiftDequantizer,
                       Dequantizer<kFormat, false>>;

// Returns whether EncodeUnit() can write the decoded values itself.
template <BlockFormat kFormat>
HWY_INLINE bool CanDecodeWhileEncoding(const float quarter_scales[4]) {
  if (!kHasShiftDequantizer<kFormat>) return CodeBits(kFormat) == 4;
  return std::all_of(quarter_scales, quarter_scales + 4, [](float scale) {
    return ShiftDequantizer::Fits(scale, 1);
  });
}

// Encodes the values of one unit, given the scales of its four quarters.
// Decodes them, too, if `decoded` is not null, which requires
// CanDecodeWhileEncoding().
template <BlockFormat kFormat>
HWY_INLINE void EncodeUnit(const float* values, const float quarter_scales[4],
                           char* codes, float* decoded) {
  for (size_t quarter = 0; quarter < 4; quarter += 2) {
    const Quantizer<kFormat> low(quarter_scales[quarter]);
    const Quantizer<kFormat> high(quarter_scales[quarter + 1]);
    const float* const half = values + 64 * quarter;
    char* const half_codes = codes + quarter * 64 * CodeBits(kFormat) / 8;
    if constexpr (CodeBits(kFormat) == 8) {
      EncodeBytes(half, 64, low, half_codes);
      EncodeBytes(half + 64, 64, high, half_codes + 64);
    } else if (decoded == nullptr) {
      EncodeNibbles(half, low, high, half_codes, NoDecoded());
    } else {
      const DecodedGroup<EncodersDequantizer<kFormat>> group = {
          {quarter_scales[quarter], 1},
          {quarter_scales[quarter + 1], 1},
          decoded + 64 * quarter};
      EncodeNibbles(half, low, high, half_codes, group);
    }
  }
}

HWY_INLINE bool IsPositiveNumber(float scale) {
  return scale > 0 && scale - scale == 0;
}

// Encodes a unit in which not all scales are usable.
template <BlockFormat kFormat>
HWY_NOINLINE void EncodeUnitWithBadScales(const float* values,
                                          const float quarter_scales[4],
                                          char* codes) {
  float changed[kBlockUnit];
  float scales[4];
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    const float scale = quarter_scales[quarter];
    // Values become zeros if the scale is infinite or 0; those beyond the
    // largest scale saturate.
    const bool is_number = IsPositiveNumber(scale);
    const float top = is_number ? TopLevel(kFormat) * scale : 0;
    scales[quarter] = is_number ? scale : 1;
    for (size_t i = 64 * quarter; i < 64 * quarter + 64; ++i) {
      changed[i] = is_number ? std::clamp(values[i], -top, top) : 0;
    }
  }
  EncodeUnit<kFormat>(changed, scales, codes, nullptr);
}

template <BlockFormat kFormat>
void EncodeUnits(size_t block_size, size_t units, const float* values,
                 char* scales, char* codes, float* decoded) {
  constexpr size_t kUnitCodeBytes = kBlockUnit * CodeBits(kFormat) / 8;
  for (size_t unit = 0; unit < units; ++unit) {
    const float* const source = values + unit * kBlockUnit;
    char* const unit_scales = scales + unit * kBlockUnit / block_size * 2;
    char* const unit_codes = codes + unit * kUnitCodeBytes;
    float quarter_scales[4];
    bool all_usable = true;
    for (size_t at = 0; at < kBlockUnit; at += block_size) {
      const uint16_t scale =
          BlockScale<kFormat>(AbsMax(source + at, block_size));
      std::memcpy(unit_scales + at / block_size * 2, &scale, sizeof(scale));
      all_usable &= UsableScale(kFormat, scale);
      for (size_t i = at; i < at + block_size; i += 64) {
        quarter_scales[i / 64] = FloatFromBf16(scale);
      }
    }
    float* unit_decoded =
        decoded == nullptr ? nullptr : decoded + unit * kBlockUnit;
    if (HWY_LIKELY(all_usable)) {
      const bool decode = unit_decoded != nullptr &&
                          CanDecodeWhileEncoding<kFormat>(quarter_scales);
      EncodeUnit<kFormat>(source, quarter_scales, unit_codes,
                          decode ? unit_decoded : nullptr);
      if (decode) unit_decoded = nullptr;
    } else {
      EncodeUnitWithBadScales<kFormat>(source, quarter_scales, unit_codes);
    }
    if (unit_decoded != nullptr) {
      DecodeUnits<kFormat>(block_size, 1, unit_scales, unit_codes,
                           unit_decoded);
    }
  }
}

template <BlockFormat kFormat>
constexpr BlockKernels kKernels = {EncodeUnits<kFormat>, DecodeUnits<kFormat>,
                                   SumUnits<kFormat>,
                                   SumOfSquaresOfUnits<kFormat>};

const BlockKernels* KernelsOfTarget(BlockFormat format) {
  switch (format) {
    case BlockFormat::kInt8:
      return &kKernels<BlockFormat::kInt8>;
    case BlockFormat::kInt4:
      return &kKernels<BlockFormat::kInt4>;
    case BlockFormat::kE3m0:
      break;
  }
  return &kKernels<BlockFormat::kE3m0>;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(KernelsOfTarget);

const BlockKernels& CpuBlockKernels(BlockFormat format) {
  return *HWY_DYNAMIC_DISPATCH(KernelsOfTarget)(format);
}

}  // namespace causeway
#endif  // HWY_ONCE
