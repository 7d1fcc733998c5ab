// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors of codes to values, for each format of quantization/block_format.h,
// for quantization/block_kernels_cpu.cc, which is the only file that includes
// it, once for each instruction set.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_BLOCK_DEQUANTIZERS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_BLOCK_DEQUANTIZERS_INL_H_
#undef QUANTIZATION_BLOCK_DEQUANTIZERS_INL_H_
#else
#define QUANTIZATION_BLOCK_DEQUANTIZERS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "quantization/block_format.h"
#include "quantization/block_quantizers-inl.h"
#include "quantization/reference.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float LoadScale(const char* scale) {
  uint16_t code;
  std::memcpy(&code, scale, sizeof(code));
  return FloatFromBf16(code);
}

// What table look-ups take, which ignore the bits above an index.
HWY_INLINE auto TableIndices(IntVec codes) {
#if HWY_IS_DEBUG_BUILD
  constexpr int kEntries = HWY_MAX_BYTES / sizeof(float) - 1;
  codes = hn::And(codes, hn::Set(Ints(), kEntries));
#endif
  return hn::IndicesFromVec(Floats(), codes);
}

// Where in a lane codes of at most 4 bits are; the other bits do not count.
enum class CodesIn { kLowestBits, kHighestBits };

// weight * (level(code) * scale) of the codes of one block; without kWeighted,
// level(code) * scale.
//
// At most 4 bits: levels are looked up in a table that has been multiplied
// already, which rounds as multiplying each value does.
template <BlockFormat kFormat, bool kWeighted>
class Dequantizer {
 public:
  static constexpr CodesIn kCodesIn = CodesIn::kLowestBits;

  Dequantizer(float scale, float weight) {
    const Floats floats;
    for (size_t i = 0; i < kEntries; i += hn::Lanes(floats)) {
      auto scaled = hn::Mul(hn::LoadU(floats, NibbleLevels(kFormat) + i),
                            hn::Set(floats, scale));
      if (kWeighted) scaled = hn::Mul(hn::Set(floats, weight), scaled);
      hn::Store(scaled, floats, table_ + i);
    }
  }

  HWY_INLINE FloatVec Values(IntVec codes) const {
    const Floats floats;
    if constexpr (HWY_MAX_BYTES >= 64) {
      return hn::TableLookupLanes(hn::Load(floats, table_),
                                  TableIndices(codes));
    } else if constexpr (HWY_MAX_BYTES == 32) {
      const auto indices = TableIndices(codes);
      const auto low = hn::TableLookupLanes(hn::Load(floats, table_), indices);
      if constexpr (kFormat == BlockFormat::kInt2) return low;
      const auto highest_bit = hn::BitCast(floats, hn::ShiftLeft<28>(codes));
      if constexpr (kHasSignBit) {
        return hn::Xor(low, hn::And(highest_bit, hn::Set(floats, -0.0f)));
      } else {
        const auto high =
            hn::TableLookupLanes(hn::Load(floats, table_ + 8), indices);
        return hn::IfNegativeThenElse(highest_bit, high, low);
      }
    } else {
      return hn::GatherIndex(floats, table_,
                             hn::And(codes, hn::Set(Ints(), 15)));
    }
  }

 private:
  // Whether the upper half of the levels are the lower half's negatives.
  static constexpr bool kHasSignBit =
      kFormat == BlockFormat::kE3m0 || kFormat == BlockFormat::kE2m1;
  static constexpr size_t kEntries =
      HWY_MAX_BYTES == 32 && (kHasSignBit || kFormat == BlockFormat::kInt2)
          ? 8
          : 16;

  alignas(64) float table_[16];
};

// Whether ShiftDequantizer can take the place of a table: without a vector that
// holds one.
template <BlockFormat kFormat>
constexpr bool kHasShiftDequantizer =
    kFormat == BlockFormat::kE3m0&& HWY_MAX_BYTES < 64;

// For kE3m0. Sign and code of a level 2^(code - 7) become those and the
// exponent of 2^(code - 127), or zero for code 0, so that one factor makes the
// value. As the product has no rounding, neither has what is added to a sum
// with it.
class ShiftDequantizer {
 public:
  static constexpr CodesIn kCodesIn = CodesIn::kHighestBits;

  // With another product, factor or values may leave the range of normal
  // numbers.
  static bool Fits(float scale, float weight) {
    const float product = weight * scale;
    return product == 0 || (product >= 0x1p-119f && product < 0x1p7f);
  }

  ShiftDequantizer(float scale, float weight)
      : factor_(weight * scale * 0x1p120f) {}

  HWY_INLINE FloatVec Values(IntVec codes) const {
    return hn::Mul(Level(codes), hn::Set(Floats(), factor_));
  }

  HWY_INLINE FloatVec AddTo(FloatVec sum, IntVec codes) const {
    return hn::MulAdd(Level(codes), hn::Set(Floats(), factor_), sum);
  }

 private:
  static HWY_INLINE FloatVec Level(IntVec codes) {
    return hn::And(hn::BitCast(Floats(), hn::ShiftRight<5>(codes)),
                   hn::BitCast(Floats(), hn::Set(Words(), 0x83800000u)));
  }

  const float factor_;
};

template <bool kWeighted>
class ScalarDequantizer {
 public:
  static constexpr CodesIn kCodesIn = CodesIn::kLowestBits;

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

#if HWY_MAX_BYTES < 64
// Less work than a table that takes more than one vector.
template <bool kWeighted>
class Dequantizer<BlockFormat::kInt4, kWeighted>
    : public ScalarDequantizer<kWeighted> {
 public:
  using ScalarDequantizer<kWeighted>::ScalarDequantizer;

  static constexpr CodesIn kCodesIn = CodesIn::kHighestBits;

  HWY_INLINE FloatVec Values(IntVec codes) const {
    return this->Scaled(hn::ConvertTo(Floats(), hn::ShiftRight<28>(codes)));
  }
};
#endif

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

// `sum` plus the values of codes.
template <class BlockDequantizer>
HWY_INLINE FloatVec AddValues(const BlockDequantizer& block, IntVec codes,
                              FloatVec sum) {
  if constexpr (requires { block.AddTo(sum, codes); }) {
    return block.AddTo(sum, codes);
  } else {
    return hn::Add(sum, block.Values(codes));
  }
}

// The codes at position `position` of `packed`, which have `kBits` bits each,
// for BlockDequantizer.
template <class BlockDequantizer, size_t kBits>
HWY_INLINE IntVec UnpackedCodes(hn::Vec<Words> packed, size_t position) {
  const size_t right = kBits * position;
  return hn::BitCast(
      Ints(),
      BlockDequantizer::kCodesIn == CodesIn::kHighestBits
          ? hn::ShiftLeftSame(packed, static_cast<int>(32 - kBits - right))
          : hn::ShiftRightSame(packed, static_cast<int>(right)));
}

// Whether ShiftDequantizer fits all blocks with these scales.
inline bool ShiftFits(const char* scales, size_t blocks, float weight) {
  bool fits = true;
  for (size_t i = 0; i < blocks; ++i) {
    fits &= ShiftDequantizer::Fits(LoadScale(scales + 2 * i), weight);
  }
  return fits;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_BLOCK_DEQUANTIZERS_INL_H_
