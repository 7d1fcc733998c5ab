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

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row: the values whose 4-bit codes share a position in the words of a group.
constexpr size_t kRow = 16;
constexpr size_t kRowsOfGroup = kNibbleGroup / kRow;

using Floats = hn::CappedTag<float, kRow>;
using Ints = hn::Rebind<int32_t, Floats>;
using Words = hn::Rebind<uint32_t, Floats>;
using Bytes = hn::Rebind<uint8_t, Floats>;
using SignedBytes = hn::Rebind<int8_t, Floats>;
using FloatVec = hn::Vec<Floats>;
using IntVec = hn::Vec<Ints>;

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

HWY_INLINE IntVec Magnitude(IntVec bits) {
  return hn::And(bits, hn::Set(Ints(), 0x7fffffff));
}

// `magnitude` with the sign of `value` at bit kPosition.
template <int kPosition>
HWY_INLINE IntVec WithSignAt(IntVec magnitude, FloatVec value) {
  const auto bits = hn::BitCast(Words(), value);
  const auto sign = hn::BitCast(Ints(), hn::ShiftRight<31 - kPosition>(bits));
  return hn::OrAnd(magnitude, sign, hn::Set(Ints(), 1 << kPosition));
}

template <int kPosition>
HWY_INLINE IntVec WithSignUnlessZero(IntVec magnitude, FloatVec value) {
  const auto not_zero = hn::Gt(magnitude, hn::Zero(Ints()));
  return hn::IfThenElseZero(not_zero, WithSignAt<kPosition>(magnitude, value));
}

// Codes of the values of one block, one in each 32-bit lane. What lies above
// the code's bits is cut off later. `scale` is usable (see UsableScale), so
// values are finite and none needs to be clamped: the largest is at most
// (1 + 2^-8) times the top level, which rounds to the top level by itself.
template <BlockFormat kFormat>
class Quantizer;

// Nearest level 2^k * scale without a division: the exponents of magnitudes
// and of the threshold 1.5 * 2^k * scale differ by k and the significands
// decide, which is what subtracting their bits does.
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
    return hn::IfThenElseZero(
        not_zero, WithSignAt<3>(hn::Max(code, hn::Set(ints, 1)), value));
  }

 private:
  const int32_t code0_;
  const int32_t zero_;
};

// Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it
// in two's complement in the lowest bits.
class IntegerQuantizer {
 public:
  explicit IntegerQuantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    return hn::BitCast(Ints(), hn::Add(quotient, hn::Set(floats, 0x1.8p23f)));
  }

 private:
  const float reciprocal_;
};
template <>
class Quantizer<BlockFormat::kInt8> : public IntegerQuantizer {
  using IntegerQuantizer::IntegerQuantizer;
};
template <>
class Quantizer<BlockFormat::kInt4> : public IntegerQuantizer {
  using IntegerQuantizer::IntegerQuantizer;
};

template <>
class Quantizer<BlockFormat::kNf4> {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const auto quotient = hn::Mul(value, hn::Set(Floats(), reciprocal_));
    auto code = hn::Set(Ints(), -7);
    for (int level = -7; level < 8; ++level) {
      const float middle =
          (kNf4Levels[level & 15] + kNf4Levels[(level + 1) & 15]) / 2;
      const auto above = hn::Ge(quotient, hn::Set(Floats(), middle));
      code = hn::IfThenElse(hn::RebindMask(Ints(), above),
                            hn::Set(Ints(), level + 1), code);
    }
    return code;
  }

 private:
  const float reciprocal_;
};

template <>
class Quantizer<BlockFormat::kE2m1> {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    const auto magnitude = hn::Abs(quotient);
    auto code = hn::Zero(Ints());
    for (int level = 0; level < 7; ++level) {
      const auto middle =
          hn::Set(floats, (kE2m1Levels[level] + kE2m1Levels[level + 1]) / 2);
      const auto above = level % 2 == 1 ? hn::Ge(magnitude, middle)
                                        : hn::Gt(magnitude, middle);
      code = hn::IfThenElse(hn::RebindMask(Ints(), above),
                            hn::Set(Ints(), level + 1), code);
    }
    return WithSignUnlessZero<3>(code, quotient);
  }

 private:
  const float reciprocal_;
};

template <>
class Quantizer<BlockFormat::kFp8E4m3> {
 public:
  explicit Quantizer(float scale) : reciprocal_(1.0f / scale) {}

  HWY_INLINE IntVec Codes(FloatVec value) const {
    const Floats floats;
    const Ints ints;
    const auto quotient = hn::Mul(value, hn::Set(floats, reciprocal_));
    const auto magnitude = hn::Abs(quotient);
    // Denormals are multiples of 2^-9, the last bit of 2^14.
    const auto denormal =
        hn::Sub(hn::BitCast(ints, hn::Add(magnitude, hn::Set(floats, 0x1p14f))),
                hn::Set(ints, std::bit_cast<int32_t>(0x1p14f)));
    const auto bits = hn::BitCast(ints, magnitude);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(ints, 1));
    const auto rounded =
        hn::ShiftRight<20>(hn::Add(hn::Add(bits, hn::Set(ints, 0x7ffff)), odd));
    const auto normal = hn::Sub(rounded, hn::Set(ints, (127 - 7) << 3));
    const auto is_denormal = hn::Lt(magnitude, hn::Set(floats, 0x1p-6f));
    const auto magnitude_code =
        hn::IfThenElse(hn::RebindMask(ints, is_denormal), denormal, normal);
    return WithSignUnlessZero<7>(magnitude_code, quotient);
  }

 private:
  const float reciprocal_;
};

// weight * (level(code) * scale) of the codes of one block; without kWeighted,
// level(code) * scale.
//
// The 4-bit formats: levels are looked up in a table that has been multiplied
// already, which rounds as multiplying each value does.
template <BlockFormat kFormat, bool kWeighted>
class Dequantizer {
 public:
  Dequantizer(float scale, float weight) {
    const Floats floats;
    for (size_t i = 0; i < 16; i += hn::Lanes(floats)) {
      auto scaled = hn::Mul(hn::LoadU(floats, NibbleLevels(kFormat) + i),
                            hn::Set(floats, scale));
      if (kWeighted) scaled = hn::Mul(hn::Set(floats, weight), scaled);
      hn::Store(scaled, floats, table_ + i);
    }
  }

  // `codes` are 0 .. 15.
  HWY_INLINE FloatVec Values(IntVec codes) const {
    const Floats floats;
    const Ints ints;
    if constexpr (HWY_MAX_BYTES >= 64) {
      return hn::TableLookupLanes(hn::Load(floats, table_),
                                  hn::IndicesFromVec(floats, codes));
    } else if constexpr (HWY_MAX_BYTES == 32) {
      const auto indices =
          hn::IndicesFromVec(floats, hn::And(codes, hn::Set(ints, 7)));
      const auto low = hn::TableLookupLanes(hn::Load(floats, table_), indices);
      const auto high =
          hn::TableLookupLanes(hn::Load(floats, table_ + 8), indices);
      const auto is_high = hn::Gt(codes, hn::Set(ints, 7));
      return hn::IfThenElse(hn::RebindMask(floats, is_high), high, low);
    } else {
      return hn::GatherIndex(floats, table_, codes);
    }
  }

 private:
  alignas(64) float table_[16];
};

template <bool kWeighted>
class ScalarDequantizer {
 public:
  ScalarDequantizer(float scale, float weight)
      : scale_(scale), weight_(weight) {}

 protected:
  HWY_INLINE FloatVec Scaled(FloatVec level) const {
    const auto value = hn::Mul(level, hn::Set(Floats(), scale_));
    return kWeighted ? hn::Mul(hn::Set(Floats(), weight_), value) : value;
  }

 private:
  const float scale_;
  const float weight_;
};

template <bool kWeighted>
class Dequantizer<BlockFormat::kInt8, kWeighted>
    : public ScalarDequantizer<kWeighted> {
 public:
  using ScalarDequantizer<kWeighted>::ScalarDequantizer;

  // `codes` are -128 .. 127.
  HWY_INLINE FloatVec Values(IntVec codes) const {
    return this->Scaled(hn::ConvertTo(Floats(), codes));
  }
};

template <bool kWeighted>
class Dequantizer<BlockFormat::kFp8E4m3, kWeighted>
    : public ScalarDequantizer<kWeighted> {
 public:
  using ScalarDequantizer<kWeighted>::ScalarDequantizer;

  // `codes` may be sign-extended.
  HWY_INLINE FloatVec Values(IntVec codes) const {
    const Floats floats;
    const Ints ints;
    const auto magnitude = hn::And(codes, hn::Set(ints, 0x7f));
    const auto sign = hn::ShiftLeft<24>(hn::And(codes, hn::Set(ints, 0x80)));
    const auto normal = hn::BitCast(
        floats,
        hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(ints, (127 - 7) << 23)));
    const auto denormal =
        hn::Mul(hn::ConvertTo(floats, magnitude), hn::Set(floats, 0x1p-9f));
    const auto is_denormal = hn::Lt(magnitude, hn::Set(ints, 8));
    const auto is_nan = hn::Eq(magnitude, hn::Set(ints, 0x7f));
    const auto finite =
        hn::IfThenElse(hn::RebindMask(floats, is_denormal), denormal, normal);
    const auto nan = hn::BitCast(floats, hn::Set(ints, 0x7fc00000));
    const auto level =
        hn::IfThenElse(hn::RebindMask(floats, is_nan), nan, finite);
    return this->Scaled(hn::Or(level, hn::BitCast(floats, sign)));
  }
};

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
