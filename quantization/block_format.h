// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The formats with one scale per block: their levels and their bytes.
//
// A vector is cut into flat blocks of 64, 128 or 256 values (the last may be
// shorter). A value is sent as a code, and decodes to
//
//   level(code) * scale        in binary32, rounded once
//
// where the scale is a bfloat16 of the block. For kInt2 it is the root mean
// square of the block's values; for all others |largest value| / top level,
// rounded to nearest. That moves it by at most one part in 2^8, so the largest
// value still maps to the top level, and is no further from it than other
// values may be from theirs. It also makes codecs idempotent: what was decoded
// encodes to the same bytes. (Measured for INT8 in blocks of 128 Gaussian
// values: always rounding up, so that the top level is never below the largest
// value, costs 1.1 % more squared error; a binary32 scale costs 0.4 % less, and
// 0.125 bits a value.)
//
// That is rounding to the nearest level. With stochastic rounding a value goes
// to one of the two levels around it, at random, such that its mean is the
// value; there the scale is |largest value| / top level, rounded up, for kInt2
// too, so that no value is beyond the top level.
//
// Bytes of a strip (quantization/strip_layout.h) of n values, in two planes, so
// that a lossless stage can work on the codes alone:
//
//   scales  2 * ceil(n / block size) bytes, little-endian bfloat16
//   codes   8-bit formats: n bytes, code i at byte i
//           4-bit formats: 64 * ceil(n / 128) bytes, see below
//           2-bit formats: 64 * ceil(n / 256) bytes, see below
//
// 4-bit codes lie in groups of 128 (kNibbleGroup), a group in 16 little-endian
// 32-bit words: code 16 j + i of the group (0 <= i < 16, 0 <= j < 8) is bits
// 4 j .. 4 j + 3 of word i. So eight vectors of codes are packed with a shift
// and an OR each, and no lane ever moves. The last group is filled up with
// zero codes, which readers ignore. 2-bit codes lie likewise in groups of 256
// (kPairGroup): code 16 j + i (0 <= j < 16) is bits 2 j and 2 j + 1 of word i.
//
// docs/encodings.md says the same for other implementations, with examples.
#ifndef QUANTIZATION_BLOCK_FORMAT_H_
#define QUANTIZATION_BLOCK_FORMAT_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace causeway {

enum class BlockFormat {
  // Sign, 4 exponent bits (bias 7), 3 fraction bits; levels up to 448;
  // exponent and fraction all ones are NaN ("E4M3FN" in the OCP 8-bit
  // Floating Point Specification). Half-way values go to the even fraction.
  kFp8E4m3,
  // Two's complement, levels -127 .. 127. Half-way values go to the even
  // level. -128 is never written and read as it is.
  kInt8,
  // Two's complement, levels -7 .. 7, as kInt8.
  kInt4,
  // The 16 levels of NormalFloat (QLoRA, arXiv 2305.14314, appendix E), in the
  // order of 4-bit two's complement around zero: code 0 is 0, codes 1 .. 8 are
  // the positive levels, 9 .. 15 the negative ones from -1 up. Half-way values
  // go to the greater level.
  kNf4,
  // Sign, 2 exponent bits (bias 1), 1 fraction bit: 0 0.5 1 1.5 2 3 4 6 (OCP
  // Microscaling Formats). Half-way values go to the even fraction.
  kE2m1,
  // Sign and a 3-bit code c: 0, or 2^(c - 7) for c in 1 .. 7. Half-way values
  // (in linear space: 1.5 * 2^k, and 2^-7 above zero) go away from zero.
  kE3m0,
  // The four levels with the least mean squared error for normally distributed
  // values (Max, "Quantizing for minimum distortion", 1960, table I), in units
  // of the block's root mean square, in the order of two's complement: codes 0
  // and 1 are the positive levels, 2 and 3 the negative ones from the least up.
  // Half-way values go to the greater level. There is no level 0.
  kInt2,
};

// Of kInt2: the means of the normal distribution's halves cut at the half-way
// between them, which is 0.98159882.
inline constexpr float kInt2Low = 0.45278004f;
inline constexpr float kInt2Top = 1.5104176f;

// The largest level. The largest magnitude of a block maps to it, but for kInt2
// with nearest rounding.
constexpr float TopLevel(BlockFormat format) {
  switch (format) {
    case BlockFormat::kFp8E4m3:
      return 448;
    case BlockFormat::kInt8:
      return 127;
    case BlockFormat::kInt4:
      return 7;
    case BlockFormat::kE2m1:
      return 6;
    case BlockFormat::kInt2:
      return kInt2Top;
    case BlockFormat::kNf4:
    case BlockFormat::kE3m0:
      break;
  }
  return 1;
}

// The largest magnitude that a reader may meet.
constexpr float LargestLevel(BlockFormat format) {
  if (format == BlockFormat::kInt8) return 128;
  if (format == BlockFormat::kInt4) return 8;
  return TopLevel(format);
}

constexpr uint32_t CodeBits(BlockFormat format) {
  switch (format) {
    case BlockFormat::kFp8E4m3:
    case BlockFormat::kInt8:
      return 8;
    case BlockFormat::kInt2:
      return 2;
    default:
      return 4;
  }
}

// Scales are bfloat16 codes. Below 2^-100 the whole block is written as zeros
// (scale 0, codes 0). So no threshold and no reciprocal of a scale is ever
// denormal, and machines that flush denormals get the same bits.
inline constexpr uint16_t kSmallestScale = 0x0d80;
inline constexpr uint16_t kInfiniteScale = 0x7f80;
inline constexpr uint16_t kNanScale = 0x7fc0;

// The largest scale with which every level is finite; values that would need a
// larger one saturate. Greater codes (infinities, NaN, negative numbers) are
// not valid; only blocks with values that are not finite are written so.
constexpr uint16_t LargestScale(BlockFormat format) {
  const float scale = std::numeric_limits<float>::max() / LargestLevel(format);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16);
}

// 4-bit codes are packed in groups of this many, each of kNibbleGroupBytes.
inline constexpr uint64_t kNibbleGroup = 128;
inline constexpr uint64_t kNibbleGroupBytes = 64;
// 2-bit codes are packed in groups of this many, each of kPairGroupBytes.
inline constexpr uint64_t kPairGroup = 256;
inline constexpr uint64_t kPairGroupBytes = 64;

// Bytes of the two planes of `values` values.
constexpr uint64_t ScalePlaneBytes(uint64_t values, uint32_t block_size) {
  return 2 * ((values + block_size - 1) / block_size);
}
constexpr uint64_t CodePlaneBytes(BlockFormat format, uint64_t values) {
  if (CodeBits(format) == 8) return values;
  if (CodeBits(format) == 2) {
    return (values + kPairGroup - 1) / kPairGroup * kPairGroupBytes;
  }
  return (values + kNibbleGroup - 1) / kNibbleGroup * kNibbleGroupBytes;
}

// Levels by code.
inline constexpr float kInt4Levels[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                          -8, -7, -6, -5, -4, -3, -2, -1};
inline constexpr float kNf4Levels[16] = {
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
};
inline constexpr float kE2m1Levels[16] = {
    0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
inline constexpr float kE3m0Levels[16] = {
    0.0f,  0x1p-6f,  0x1p-5f,  0x1p-4f,  0x1p-3f,  0x1p-2f,  0x1p-1f,  1.0f,
    -0.0f, -0x1p-6f, -0x1p-5f, -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1.0f};

// As many times as 4-bit indices have them: the upper bits do not count.
inline constexpr float kInt2Levels[16] = {
    kInt2Low,  kInt2Top,  -kInt2Top, -kInt2Low, kInt2Low,  kInt2Top,
    -kInt2Top, -kInt2Low, kInt2Low,  kInt2Top,  -kInt2Top, -kInt2Low,
    kInt2Low,  kInt2Top,  -kInt2Top, -kInt2Low};

// The levels of a format of at most 4 bits.
constexpr const float* NibbleLevels(BlockFormat format) {
  switch (format) {
    case BlockFormat::kInt2:
      return kInt2Levels;
    case BlockFormat::kInt4:
      return kInt4Levels;
    case BlockFormat::kNf4:
      return kNf4Levels;
    case BlockFormat::kE2m1:
      return kE2m1Levels;
    case BlockFormat::kE3m0:
      return kE3m0Levels;
    case BlockFormat::kFp8E4m3:
    case BlockFormat::kInt8:
      break;
  }
  return nullptr;
}

}  // namespace causeway

#endif  // QUANTIZATION_BLOCK_FORMAT_H_
