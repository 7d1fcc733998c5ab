// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_kernels_cpu.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "quantization/block_reference.h"
#include "quantization/reference.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/block_kernels_cpu.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "quantization/block_quantizers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kRowsOfGroup = kNibbleGroup / kRow;

// How far ahead of the reads memory is asked for: further than the hardware
// looks by itself. Of 0, 1, 2, 4 and 8 KiB the last was fastest. Asking beyond
// the end of an array does no harm.
//
// Encoders read a block twice, from memory and then from the cache. Half of
// the lines ahead are asked for in each pass, so that memory is never idle.
constexpr size_t kPrefetchBytes = 8192;

HWY_INLINE void PrefetchAhead(const void* address) {
  hwy::Prefetch(static_cast<const char*>(address) + kPrefetchBytes);
}

// What is done with decoded values.
template <bool kAccumulate>
HWY_INLINE void Put(FloatVec value, float* destination) {
  const Floats floats;
  if (kAccumulate) value = hn::Add(hn::LoadU(floats, destination), value);
  hn::StoreU(value, floats, destination);
}

// `low` and `high` belong to the blocks of the lower and upper half of the
// group: the same block unless blocks have 64 values.
template <BlockFormat kFormat>
HWY_INLINE void EncodeGroup(const float* values, const Quantizer<kFormat>& low,
                            const Quantizer<kFormat>& high, char* codes) {
  const Words words;
  const size_t lanes = hn::Lanes(words);
  for (size_t lane = 0; lane < kRow; lane += lanes) {
    auto packed = hn::Zero(words);
    for (size_t row = 0; row < kRowsOfGroup; ++row) {
      const Quantizer<kFormat>& quantizer = row < kRowsOfGroup / 2 ? low : high;
      if (row % 2 == 1 && lane == 0) PrefetchAhead(values + row * kRow);
      const auto value = hn::LoadU(Floats(), values + row * kRow + lane);
      const auto code = hn::BitCast(words, quantizer.Codes(value));
      packed =
          hn::OrAnd(packed, hn::ShiftLeftSame(code, static_cast<int>(4 * row)),
                    hn::Set(words, 15u << (4 * row)));
    }
    hn::StoreU(packed, words, reinterpret_cast<uint32_t*>(codes) + lane);
  }
}

template <BlockFormat kFormat, bool kAccumulate>
HWY_INLINE void DecodeGroup(const char* codes,
                            const Dequantizer<kFormat, kAccumulate>& low,
                            const Dequantizer<kFormat, kAccumulate>& high,
                            float* destination) {
  const Words words;
  const size_t lanes = hn::Lanes(words);
  for (size_t lane = 0; lane < kRow; lane += lanes) {
    const auto packed =
        hn::LoadU(words, reinterpret_cast<const uint32_t*>(codes) + lane);
    for (size_t row = 0; row < kRowsOfGroup; ++row) {
      const auto& dequantizer = row < kRowsOfGroup / 2 ? low : high;
      const auto code =
          hn::And(hn::ShiftRightSame(packed, static_cast<int>(4 * row)),
                  hn::Set(words, 15));
      Put<kAccumulate>(dequantizer.Values(hn::BitCast(Ints(), code)),
                       destination + row * kRow + lane);
    }
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

template <BlockFormat kFormat, bool kAccumulate>
HWY_INLINE void DecodeBytes(
    const char* codes, size_t count,
    const Dequantizer<kFormat, kAccumulate>& dequantizer, float* destination) {
  for (size_t i = 0; i < count; i += hn::Lanes(Floats())) {
    const auto code =
        hn::LoadU(SignedBytes(), reinterpret_cast<const int8_t*>(codes) + i);
    Put<kAccumulate>(dequantizer.Values(hn::PromoteTo(Ints(), code)),
                     destination + i);
  }
}

// The largest magnitude, as its bits: their order also puts NaN above infinity.
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

HWY_INLINE float LoadScale(const char* scale) {
  uint16_t code;
  std::memcpy(&code, scale, sizeof(code));
  return FloatFromBf16(code);
}

template <BlockFormat kFormat, bool kAccumulate>
void DecodeUnits(size_t block_size, size_t units, const char* scales,
                 const char* codes, float weight, float* destination) {
  using BlockDequantizer = Dequantizer<kFormat, kAccumulate>;
  constexpr size_t kPiece = CodeBits(kFormat) == 4 ? kNibbleGroup : 64;
  for (size_t i = 0; i < units * kBlockUnit; i += kPiece) {
    if (kAccumulate) {
      for (size_t row = 0; row < kPiece; row += kRow) {
        PrefetchAhead(destination + i + row);
      }
    }
    const char* const piece = codes + i * CodeBits(kFormat) / 8;
    PrefetchAhead(piece);
    const BlockDequantizer low(LoadScale(scales + i / block_size * 2), weight);
    if constexpr (CodeBits(kFormat) == 8) {
      DecodeBytes<kFormat, kAccumulate>(piece, kPiece, low, destination + i);
    } else if (block_size == 64) {
      const BlockDequantizer high(LoadScale(scales + (i / 64 + 1) * 2), weight);
      DecodeGroup<kFormat, kAccumulate>(piece, low, high, destination + i);
    } else {
      DecodeGroup<kFormat, kAccumulate>(piece, low, low, destination + i);
    }
  }
}

// Whether values of a block with this scale can be encoded as they are.
HWY_INLINE bool UsableScale(BlockFormat format, uint16_t scale) {
  return scale != 0 && scale < LargestScale(format);
}

// Encodes the values of one unit, given the scales of its four quarters.
template <BlockFormat kFormat>
HWY_INLINE void EncodeUnit(const float* values, const float quarter_scales[4],
                           char* codes) {
  for (size_t quarter = 0; quarter < 4; quarter += 2) {
    const Quantizer<kFormat> low(quarter_scales[quarter]);
    const Quantizer<kFormat> high(quarter_scales[quarter + 1]);
    const float* const half = values + 64 * quarter;
    char* const half_codes = codes + quarter * 64 * CodeBits(kFormat) / 8;
    if constexpr (CodeBits(kFormat) == 8) {
      EncodeBytes<kFormat>(half, 64, low, half_codes);
      EncodeBytes<kFormat>(half + 64, 64, high, half_codes + 64);
    } else {
      EncodeGroup<kFormat>(half, low, high, half_codes);
    }
  }
}

// The same for scales that are not all usable.
template <BlockFormat kFormat>
HWY_NOINLINE void EncodeUnitWithBadScales(const float* values,
                                          const float quarter_scales[4],
                                          char* codes) {
  float changed[kBlockUnit];
  float scales[4];
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    const float scale = quarter_scales[quarter];
    // Values with an infinite scale or none become zeros, those beyond the
    // largest scale saturate.
    const bool is_number = scale > 0 && scale - scale == 0;
    const float top = is_number ? TopLevel(kFormat) * scale : 0;
    scales[quarter] = is_number ? scale : 1;
    for (size_t i = 64 * quarter; i < 64 * quarter + 64; ++i) {
      changed[i] = is_number ? std::clamp(values[i], -top, top) : 0;
    }
  }
  EncodeUnit<kFormat>(changed, scales, codes);
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
    for (size_t begin = 0; begin < kBlockUnit; begin += block_size) {
      const uint16_t scale =
          ScaleOfAbsmax(kFormat, AbsMax(source + begin, block_size));
      std::memcpy(unit_scales + begin / block_size * 2, &scale, sizeof(scale));
      all_usable &= UsableScale(kFormat, scale);
      for (size_t at = begin; at < begin + block_size; at += 64) {
        quarter_scales[at / 64] = FloatFromBf16(scale);
      }
    }
    if (HWY_LIKELY(all_usable)) {
      EncodeUnit<kFormat>(source, quarter_scales, unit_codes);
    } else {
      EncodeUnitWithBadScales<kFormat>(source, quarter_scales, unit_codes);
    }
    if (decoded != nullptr) {
      DecodeUnits<kFormat, false>(block_size, 1, unit_scales, unit_codes, 1,
                                  decoded + unit * kBlockUnit);
    }
  }
}

template <BlockFormat kFormat>
void Decode(size_t block_size, size_t units, const char* scales,
            const char* codes, float* values) {
  DecodeUnits<kFormat, false>(block_size, units, scales, codes, 1, values);
}

template <BlockFormat kFormat>
constexpr BlockKernels kKernels = {EncodeUnits<kFormat>, Decode<kFormat>,
                                   DecodeUnits<kFormat, true>};

const BlockKernels* KernelsOfTarget(BlockFormat format) {
  switch (format) {
    case BlockFormat::kFp8E4m3:
      return &kKernels<BlockFormat::kFp8E4m3>;
    case BlockFormat::kInt8:
      return &kKernels<BlockFormat::kInt8>;
    case BlockFormat::kInt4:
      return &kKernels<BlockFormat::kInt4>;
    case BlockFormat::kNf4:
      return &kKernels<BlockFormat::kNf4>;
    case BlockFormat::kE2m1:
      return &kKernels<BlockFormat::kE2m1>;
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
