// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of quantization/block_format.h as a GPU does it: one value per
// call, without branches, for the device and the host. The CUDA kernels are
// made of these functions, and block_arithmetic_test.cc shows on the CPU that
// they equal quantization/block_reference.h bit for bit. Pure functions.
//
// Bit identity needs products and sums that are not fused, division as IEEE 754
// rounds it and denormals: //:cuda.bzl and .bazelrc see to that.
//
// A NaN is a NaN on all machines, but which of its bits are set is not the same
// on all; only encodings that CheckFinite() refuses decode to NaN.
#ifndef QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_
#define QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quantization/block_format.h"
#include "quantization/encode_options.h"

#ifdef __CUDACC__
#define CAUSEWAY_HOST_DEVICE __host__ __device__
#else
#define CAUSEWAY_HOST_DEVICE
#endif

// Arrays live in registers only if all their indices are constants.
#ifdef __CUDA_ARCH__
#define CAUSEWAY_UNROLL _Pragma("unroll")
#else
#define CAUSEWAY_UNROLL
#endif

namespace causeway {

// The larger magnitude; a NaN outweighs all.
CAUSEWAY_HOST_DEVICE inline float MaxMagnitude(float a, float b) {
#ifdef __CUDA_ARCH__
  // One instruction: taking magnitudes is a modifier of its operands.
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
#else
  // Magnitudes are in the order of their bits, and NaN is above infinity.
  const uint32_t a_bits = std::bit_cast<uint32_t>(a) & 0x7fffffff;
  const uint32_t b_bits = std::bit_cast<uint32_t>(b) & 0x7fffffff;
  return std::bit_cast<float>(a_bits < b_bits ? b_bits : a_bits);
#endif
}

CAUSEWAY_HOST_DEVICE inline float ScaleValue(uint16_t scale) {
  return std::bit_cast<float>(uint32_t{scale} << 16);
}

// The scale that `scale`, which is a number and not negative, is rounded to:
// the nearest, ties to even, or up; within what encoders write.
template <BlockFormat kFormat, Rounding kRounding>
CAUSEWAY_HOST_DEVICE inline uint16_t RoundedScale(float scale) {
  constexpr uint16_t kLargest = LargestScale(kFormat);
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  const uint32_t round_up =
      kRounding == Rounding::kNearest ? 0x7fff + ((bits >> 16) & 1) : 0xffff;
  const uint32_t rounded = (bits + round_up) >> 16;
  if (rounded < kSmallestScale) return 0;
  return static_cast<uint16_t>(rounded < kLargest ? rounded : kLargest);
}

// ScaleOfAbsmax() of quantization/block_reference.h.
template <BlockFormat kFormat, Rounding kRounding>
CAUSEWAY_HOST_DEVICE inline uint16_t BlockScale(float absmax) {
  constexpr float kTop = TopLevel(kFormat);
  const uint32_t absmax_bits = std::bit_cast<uint32_t>(absmax);
  if (absmax_bits > uint32_t{kInfiniteScale} << 16) return kNanScale;
  if (absmax_bits == uint32_t{kInfiniteScale} << 16) return kInfiniteScale;
  return RoundedScale<kFormat, kRounding>(absmax / kTop);
}

// ScaleOfSquares() of quantization/block_reference.h.
CAUSEWAY_HOST_DEVICE inline uint16_t Int2Scale(double sum_of_squares,
                                               uint32_t count) {
  if (sum_of_squares == 0) return 0;
  const float infinity = std::bit_cast<float>(uint32_t{kInfiniteScale} << 16);
  if (sum_of_squares == infinity) return kInfiniteScale;
  if (sum_of_squares != sum_of_squares) return kNanScale;
  return RoundedScale<BlockFormat::kInt2, Rounding::kNearest>(
      static_cast<float>(sqrt(sum_of_squares / count)));
}

// Whether the values of a block with this scale have codes; otherwise, with no
// scale or one that is not finite, all of them are 0.
CAUSEWAY_HOST_DEVICE inline bool HasCodes(uint16_t scale) {
  return scale != 0 && scale < kInfiniteScale;
}

// Beyond it values of a block saturate before they are rounded to the nearest
// level: infinity, but in blocks with the largest scale.
template <BlockFormat kFormat>
CAUSEWAY_HOST_DEVICE inline float TopValue(uint16_t scale) {
  constexpr uint16_t kLargest = LargestScale(kFormat);
  constexpr float kTop = TopLevel(kFormat);
  return scale < kLargest ? std::numeric_limits<float>::infinity()
                          : kTop * ScaleValue(scale);
}

// What quantizers look up, for the formats that need it; kernels keep it in
// shared memory.
template <BlockFormat kFormat>
struct EncodeTable {
  static constexpr EncodeTable Make() { return {}; }
};

// Half-ways between levels of NF4 are further apart than 1 / 16. So among the
// numbers that round to one multiple of that, which are a cell, there is at
// most one of them.
template <>
struct EncodeTable<BlockFormat::kNf4> {
  static constexpr int kSteps = 16;

  struct Cell {
    // Infinity if the cell has none.
    float middle;
    // The code below `middle`, or of the whole cell.
    uint32_t code;
  };

  static constexpr EncodeTable Make() {
    EncodeTable table = {};
    for (int cell = -kSteps; cell <= kSteps; ++cell) {
      const float begin = (static_cast<float>(cell) - 0.5f) / kSteps;
      const float end = (static_cast<float>(cell) + 0.5f) / kSteps;
      int level = -7;
      while (level < 8 && Middle(level) <= begin) ++level;
      const bool has_middle = level < 8 && Middle(level) < end;
      table.cells[cell + kSteps] = {
          has_middle ? Middle(level) : std::numeric_limits<float>::infinity(),
          static_cast<uint32_t>(level) & 15};
    }
    return table;
  }

  // Between a level, counted from -7 to 8, and the next one.
  static constexpr float Middle(int level) {
    return (kNf4Levels[level & 15] + kNf4Levels[(level + 1) & 15]) / 2;
  }

  Cell cells[2 * kSteps + 1];
};

// Codes of the values of one block whose scale HasCodes(), to the nearest
// level.
template <BlockFormat kFormat>
class BlockQuantizer;

// The nearest level 2^k * scale without a division: the exponents of magnitudes
// and of the threshold 1.5 * 2^k * scale differ by k, and the significands
// decide, which is what subtracting their bits does.
template <>
class BlockQuantizer<BlockFormat::kE3m0> {
 public:
  CAUSEWAY_HOST_DEVICE BlockQuantizer(float scale,
                                      const EncodeTable<BlockFormat::kE3m0>&)
      : code0_(std::bit_cast<int32_t>(0.75f * scale) - (7 << 23)),
        least_(0x1p-7f * scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    const int32_t bits = std::bit_cast<int32_t>(value);
    const int32_t magnitude = bits & 0x7fffffff;
    const int32_t exponent = (magnitude - code0_) >> 23;
    const uint32_t code = static_cast<uint32_t>(exponent < 1 ? 1 : exponent);
    const uint32_t sign = static_cast<uint32_t>(bits) >> 28 & 8;
    return std::bit_cast<float>(magnitude) < least_ ? 0 : code | sign;
  }

 private:
  int32_t code0_;
  float least_;
};

// Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it
// in two's complement in the lowest bits.
template <BlockFormat kFormat>
class IntegerBlockQuantizer {
 public:
  CAUSEWAY_HOST_DEVICE IntegerBlockQuantizer(float scale,
                                             const EncodeTable<kFormat>&)
      : reciprocal_(1.0f / scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    constexpr uint32_t kMask = (1u << CodeBits(kFormat)) - 1;
    const float quotient = value * reciprocal_;
    return std::bit_cast<uint32_t>(quotient + 0x1.8p23f) & kMask;
  }

 private:
  float reciprocal_;
};
template <>
class BlockQuantizer<BlockFormat::kInt8>
    : public IntegerBlockQuantizer<BlockFormat::kInt8> {
  using IntegerBlockQuantizer::IntegerBlockQuantizer;
};
template <>
class BlockQuantizer<BlockFormat::kInt4>
    : public IntegerBlockQuantizer<BlockFormat::kInt4> {
  using IntegerBlockQuantizer::IntegerBlockQuantizer;
};

template <>
class BlockQuantizer<BlockFormat::kNf4> {
 public:
  using Table = EncodeTable<BlockFormat::kNf4>;

  // `table` outlives the quantizer.
  CAUSEWAY_HOST_DEVICE BlockQuantizer(float scale, const Table& table)
      : reciprocal_(1.0f / scale), cells_(table.cells + Table::kSteps) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    constexpr float kRounder = 0x1.8p23f;
    const float quotient = value * reciprocal_;
    const int32_t cell =
        std::bit_cast<int32_t>(quotient * Table::kSteps + kRounder) -
        std::bit_cast<int32_t>(kRounder);
    const Table::Cell& found = cells_[cell];
    return (found.code + (quotient >= found.middle ? 1 : 0)) & 15;
  }

 private:
  float reciprocal_;
  const Table::Cell* cells_;
};

template <>
class BlockQuantizer<BlockFormat::kInt2> {
 public:
  CAUSEWAY_HOST_DEVICE BlockQuantizer(float scale,
                                      const EncodeTable<BlockFormat::kInt2>&)
      : reciprocal_(1.0f / scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    constexpr float kMiddle = (kInt2Low + kInt2Top) / 2;
    const float quotient = value * reciprocal_;
    const uint32_t positive = quotient >= kMiddle ? 1 : 0;
    const uint32_t negative = quotient >= -kMiddle ? 3 : 2;
    return quotient >= 0 ? positive : negative;
  }

 private:
  float reciprocal_;
};

// Floating-point numbers of few bits, ties to even.
template <BlockFormat kFormat, int kExponentBias, int kFractionBits,
          int kSignPosition>
class MinifloatBlockQuantizer {
 public:
  CAUSEWAY_HOST_DEVICE MinifloatBlockQuantizer(float scale,
                                               const EncodeTable<kFormat>&)
      : reciprocal_(1.0f / scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    constexpr int kCut = 23 - kFractionBits;
    constexpr float kLeastNormal = PowerOfTwo(1 - kExponentBias);
    // Its last bit is the least denormal, so that adding it rounds to one.
    constexpr float kRounder = PowerOfTwo(1 - kExponentBias + kCut);
    const uint32_t bits = std::bit_cast<uint32_t>(value * reciprocal_);
    const uint32_t magnitude_bits = bits & 0x7fffffff;
    const float magnitude = std::bit_cast<float>(magnitude_bits);
    const uint32_t denormal = std::bit_cast<uint32_t>(magnitude + kRounder) -
                              std::bit_cast<uint32_t>(kRounder);
    // Cut the fraction, to nearest even, and change the bias.
    const uint32_t odd = magnitude_bits >> kCut & 1;
    const uint32_t rounded =
        (magnitude_bits + (1u << (kCut - 1)) - 1 + odd) >> kCut;
    const uint32_t normal = rounded - ((127 - kExponentBias) << kFractionBits);
    const uint32_t code = magnitude < kLeastNormal ? denormal : normal;
    const uint32_t sign = bits >> (31 - kSignPosition) & (1u << kSignPosition);
    return code == 0 ? 0 : code | sign;
  }

 private:
  static constexpr float PowerOfTwo(int exponent) {
    return std::bit_cast<float>((127 + exponent) << 23);
  }

  float reciprocal_;
};
template <>
class BlockQuantizer<BlockFormat::kE2m1>
    : public MinifloatBlockQuantizer<BlockFormat::kE2m1, 1, 1, 3> {
  using MinifloatBlockQuantizer::MinifloatBlockQuantizer;
};
template <>
class BlockQuantizer<BlockFormat::kFp8E4m3>
    : public MinifloatBlockQuantizer<BlockFormat::kFp8E4m3, 7, 3, 7> {
  using MinifloatBlockQuantizer::MinifloatBlockQuantizer;
};

// The levels of the formats that look them up; kernels keep it in shared
// memory, where 16 words lie in 16 banks.
template <BlockFormat kFormat>
struct DecodeTable {
  static constexpr DecodeTable Make() {
    DecodeTable table = {};
    for (int code = 0; code < 16; ++code) {
      table.levels[code] = NibbleLevels(kFormat)[code];
    }
    return table;
  }
  float levels[16];
};
template <>
struct DecodeTable<BlockFormat::kInt8> {
  static constexpr DecodeTable Make() { return {}; }
};
template <>
struct DecodeTable<BlockFormat::kFp8E4m3> {
  static constexpr DecodeTable Make() { return {}; }
};

// The level of `code`, which has no more bits than the format's codes.
template <BlockFormat kFormat>
CAUSEWAY_HOST_DEVICE inline float LevelOf(const DecodeTable<kFormat>& table,
                                          uint32_t code) {
  if constexpr (kFormat == BlockFormat::kInt8) {
    return static_cast<int8_t>(code);
  } else if constexpr (kFormat == BlockFormat::kFp8E4m3) {
    // As a binary32 with the same exponent and fraction fields, which is too
    // small by the difference of the biases; denormals are no exception.
    const float magnitude =
        std::bit_cast<float>((code & 0x7f) << 20) * 0x1p120f;
    const uint32_t bits = (code & 0x7f) == 0x7f
                              ? 0x7fc00000u
                              : std::bit_cast<uint32_t>(magnitude);
    return std::bit_cast<float>(bits | (code & 0x80) << 24);
  } else {
    return table.levels[code];
  }
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_
