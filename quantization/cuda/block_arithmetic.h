// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of quantization/formats/block_format.h for GPUs: one value per
// call, without branches, for the device and the host. The CUDA kernels consist
// of these functions, and block_arithmetic_test.cc shows on the CPU that they
// equal quantization/formats/testing/block_reference.h bit for bit. Pure
// functions.
//
// Bit identity needs products and sums that are not fused, division as IEEE 754
// rounds it, and denormals; //:cuda.bzl and .bazelrc set the compilers' flags
// for that.
//
// All machines agree on which values are NaN, but not on the bits of a NaN.
// Only encodings that CheckFinite() refuses decode to NaN.
#ifndef QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_
#define QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quantization/formats/block_format.h"

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

// Returns the larger magnitude, or NaN if one of the two is NaN.
CAUSEWAY_HOST_DEVICE inline float MaxMagnitude(float a, float b) {
#ifdef __CUDA_ARCH__
  // This is one instruction: taking magnitudes is a modifier of its operands.
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

// Returns whether the values of a block with this scale have codes. In other
// blocks the scale is 0 or not finite, and all codes are 0.
CAUSEWAY_HOST_DEVICE inline bool HasCodes(uint16_t scale) {
  return scale != 0 && scale < kInfiniteScale;
}

// Returns the magnitude at which values of a block saturate before they are
// rounded to the nearest level: infinity, except in blocks with the largest
// scale.
template <BlockFormat kFormat>
CAUSEWAY_HOST_DEVICE inline float TopValue(uint16_t scale) {
  constexpr uint16_t kLargest = LargestScale(kFormat);
  constexpr float kTop = TopLevel(kFormat);
  return scale < kLargest ? std::numeric_limits<float>::infinity()
                          : kTop * ScaleValue(scale);
}

// Encodes values of one block, whose scale HasCodes(), to the nearest level.
// The levels of these formats are integers: adding 1.5 * 2^23 rounds to the
// nearest integer, ties to even, and leaves it in two's complement in the
// lowest bits.
template <BlockFormat kFormat>
class BlockQuantizer {
 public:
  CAUSEWAY_HOST_DEVICE explicit BlockQuantizer(float scale)
      : reciprocal_(1.0f / scale) {}

  CAUSEWAY_HOST_DEVICE uint32_t Code(float value) const {
    constexpr uint32_t kMask = (1u << CodeBits(kFormat)) - 1;
    const float quotient = value * reciprocal_;
    return std::bit_cast<uint32_t>(quotient + 0x1.8p23f) & kMask;
  }

 private:
  float reciprocal_;
};

// Finds the nearest level 2^k * scale without a division, by the thresholds
// 1.5 * 2^k * scale. Subtracting the bits of one from those of a magnitude
// subtracts their exponents, and borrows 1 if the magnitude has the smaller
// significand.
template <>
class BlockQuantizer<BlockFormat::kE3m0> {
 public:
  CAUSEWAY_HOST_DEVICE explicit BlockQuantizer(float scale)
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

// The table of levels of a 4-bit format. Kernels keep it in shared memory,
// where 16 words lie in 16 banks.
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

// Returns the level of `code`, which has no more bits than the format's codes.
template <BlockFormat kFormat>
CAUSEWAY_HOST_DEVICE inline float LevelOf(const DecodeTable<kFormat>& table,
                                          uint32_t code) {
  if constexpr (kFormat == BlockFormat::kInt8) {
    return static_cast<int8_t>(code);
  } else {
    return table.levels[code];
  }
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_ARITHMETIC_H_
