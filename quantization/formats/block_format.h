// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The levels and bytes of the formats with one scale per block.
//
// A vector is cut into flat blocks of 64, 128 or 256 values (the last may be
// shorter). A value is sent as a code, and decodes to
//
//   level(code) * scale        in binary32, rounded once
//
// where the scale is a bfloat16 of the block: |largest value| / top level,
// rounded to nearest. Rounding moves the scale by at most one part in 2^8, so
// the largest value still maps to the top level, with no larger error than
// other values may have. It also makes codecs idempotent: decoded values encode
// to the same bytes. (Measured for INT8 in blocks of 128 Gaussian values:
// always rounding up, so that the top level is never below the largest value,
// costs 1.1 % more squared error; a binary32 scale costs 0.4 % less, and 0.125
// bits a value.)
//
// A strip (quantization/strips/layout.h) of n values has two planes, so that a
// lossless stage can work on the codes alone:
//
//   scales  2 * ceil(n / block size) bytes, little-endian bfloat16
//   codes   8-bit formats: n bytes, code i at byte i
//           4-bit formats: 64 * ceil(n / 128) bytes, see below
//
// 4-bit codes lie in groups of 128 (kNibbleGroup). A group is 16 little-endian
// 32-bit words: code 16 j + i of the group (0 <= i < 16, 0 <= j < 8) is bits
// 4 j .. 4 j + 3 of word i. So eight vectors of codes are packed with a shift
// and an OR each, and no lane ever moves. The last group is filled up with zero
// codes, which readers ignore.
//
// docs/encodings.md describes the same for other implementations, with
// examples.
#ifndef QUANTIZATION_FORMATS_BLOCK_FORMAT_H_
#define QUANTIZATION_FORMATS_BLOCK_FORMAT_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace causeway {

enum class BlockFormat {
  // Two's complement, levels -127 .. 127. Half-way values go to the even level.
  // -128 is never written, but decodes like any other code.
  kInt8,
  // Two's complement, levels -7 .. 7, as kInt8.
  kInt4,
  // Sign and a 3-bit code c: 0, or 2^(c - 7) for c in 1 .. 7. Half-way values
  // (in linear space: 1.5 * 2^k, and 2^-7 above zero) go away from zero.
  kE3m0,
};

// Returns the largest level, to which the largest magnitude of a block maps.
constexpr float TopLevel(BlockFormat format) {
  return format == BlockFormat::kInt8   ? 127
         : format == BlockFormat::kInt4 ? 7
                                        : 1;
}

// Returns the largest magnitude of a level that a reader may meet.
constexpr float LargestLevel(BlockFormat format) {
  return format == BlockFormat::kE3m0 ? 1 : TopLevel(format) + 1;
}

constexpr uint32_t CodeBits(BlockFormat format) {
  return format == BlockFormat::kInt8 ? 8 : 4;
}

// Scales are bfloat16 codes. Below 2^-100 the whole block is written as zeros
// (scale 0, codes 0). So no threshold and no reciprocal of a scale is ever
// denormal, and machines that flush denormals get the same bits.
inline constexpr uint16_t kSmallestScale = 0x0d80;
inline constexpr uint16_t kInfiniteScale = 0x7f80;
inline constexpr uint16_t kNanScale = 0x7fc0;

// Returns the largest scale with which every level is finite; values that would
// need a larger one saturate. Greater codes (infinities, NaN, negative numbers)
// are not valid; encoders write them only for blocks with values that are not
// finite.
constexpr uint16_t LargestScale(BlockFormat format) {
  const float scale = std::numeric_limits<float>::max() / LargestLevel(format);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16);
}

// Returns the scale, a bfloat16 code, of a block whose largest magnitude is
// `absmax` (not negative): absmax / top level, rounded to binary32 and then to
// the nearest even bfloat16, or with kUp to the one above, so that no value
// exceeds the top level; 0 if that is below kSmallestScale; at most
// LargestScale(format). Infinity and NaN give kInfiniteScale and kNanScale.
template <BlockFormat kFormat, bool kUp = false>
constexpr uint16_t BlockScale(float absmax) {
  constexpr float kTop = TopLevel(kFormat);
  constexpr uint16_t kLargest = LargestScale(kFormat);
  const uint32_t absmax_bits = std::bit_cast<uint32_t>(absmax);
  if (absmax_bits > uint32_t{kInfiniteScale} << 16) return kNanScale;
  if (absmax_bits == uint32_t{kInfiniteScale} << 16) return kInfiniteScale;
  const uint32_t bits = std::bit_cast<uint32_t>(absmax / kTop);
  const uint32_t round_up = kUp ? 0xffff : 0x7fff + ((bits >> 16) & 1);
  const uint32_t rounded = (bits + round_up) >> 16;
  if (rounded < kSmallestScale) return 0;
  return static_cast<uint16_t>(rounded < kLargest ? rounded : kLargest);
}

// 4-bit codes are packed in groups of this many, each of kNibbleGroupBytes.
inline constexpr uint64_t kNibbleGroup = 128;
inline constexpr uint64_t kNibbleGroupBytes = 64;

// Returns the bytes of each plane of `values` values.
constexpr uint64_t ScalePlaneBytes(uint64_t values, uint32_t block_size) {
  return 2 * ((values + block_size - 1) / block_size);
}
constexpr uint64_t CodePlaneBytes(BlockFormat format, uint64_t values) {
  if (CodeBits(format) == 8) return values;
  return (values + kNibbleGroup - 1) / kNibbleGroup * kNibbleGroupBytes;
}

// The levels by code.
inline constexpr float kInt4Levels[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                          -8, -7, -6, -5, -4, -3, -2, -1};
inline constexpr float kE3m0Levels[16] = {
    0.0f,  0x1p-6f,  0x1p-5f,  0x1p-4f,  0x1p-3f,  0x1p-2f,  0x1p-1f,  1.0f,
    -0.0f, -0x1p-6f, -0x1p-5f, -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1.0f};

// Returns the levels of a 4-bit format.
constexpr const float* NibbleLevels(BlockFormat format) {
  return format == BlockFormat::kInt4 ? kInt4Levels : kE3m0Levels;
}

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_BLOCK_FORMAT_H_
