// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quantization/philox.h"
#include "quantization/reference.h"

namespace causeway {
namespace {

uint8_t EncodeE3m0(float scale, float value) {
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-7f * scale) return 0;
  int level = 1;
  // Products of an 8-bit significand, a small number and a power of two are
  // exact.
  while (level < 7 &&
         magnitude >= std::ldexp(1.5f * 0x1p-1f * scale, level - 6)) {
    ++level;
  }
  return static_cast<uint8_t>(level | (std::signbit(value) ? 8 : 0));
}

// Nearest integer, ties to even, within -top .. top.
int EncodeInteger(float quotient, float top) {
  return static_cast<int>(std::clamp(std::nearbyint(quotient), -top, top));
}

// Levels in ascending order are codes -7 .. 8, modulo 16.
uint8_t EncodeNf4(float quotient) {
  // From the least level up: 9 .. 15, 0 .. 8.
  int level = -7;
  while (level < 8) {
    const float low = kNf4Levels[level & 15];
    const float high = kNf4Levels[(level + 1) & 15];
    if (quotient < (low + high) / 2) break;
    ++level;
  }
  return static_cast<uint8_t>(level & 15);
}

uint8_t EncodeInt2(float quotient) {
  const float middle = (kInt2Low + kInt2Top) / 2;
  if (quotient >= 0) return quotient >= middle ? 1 : 0;
  return quotient >= -middle ? 3 : 2;
}

// A number in [0, 1).
float Uniform(uint32_t random) {
  return static_cast<float>(random >> 8) * 0x1p-24f;
}

int IntegerBelowOrAbove(float quotient, uint32_t random) {
  const float below = std::floor(quotient);
  return static_cast<int>(below) + (Uniform(random) < quotient - below);
}

// `least` is the code of the least level.
uint8_t EncodeLevelStochastically(BlockFormat format, int least, float quotient,
                                  uint32_t random) {
  const int levels = 1 << CodeBits(format);
  int step = 0;
  for (int i = 0; i + 1 < levels; ++i) {
    const float low = NibbleLevels(format)[(least + i) & (levels - 1)];
    const float high = NibbleLevels(format)[(least + i + 1) & (levels - 1)];
    step += quotient - low > Uniform(random) * (high - low);
  }
  return static_cast<uint8_t>((least + step) & (levels - 1));
}

// Minifloats with `fraction_bits` bits and this bias of the exponent.
uint8_t EncodeMinifloatStochastically(int exponent_bias, int fraction_bits,
                                      int sign_position, float quotient,
                                      uint32_t random) {
  const float magnitude = std::fabs(quotient);
  uint32_t code;
  if (magnitude < std::ldexp(1.0f, 1 - exponent_bias)) {
    code = static_cast<uint32_t>(IntegerBelowOrAbove(
        std::ldexp(magnitude, exponent_bias + fraction_bits - 1), random));
  } else {
    const int cut = 23 - fraction_bits;
    const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
    code = ((bits + (random >> (32 - cut))) >> cut) -
           (static_cast<uint32_t>(127 - exponent_bias) << fraction_bits);
  }
  if (code == 0) return 0;
  return static_cast<uint8_t>(
      code | static_cast<uint32_t>(std::signbit(quotient)) << sign_position);
}

uint8_t EncodeE2m1(float quotient) {
  const float magnitude = std::fabs(quotient);
  uint8_t code = 0;
  while (code < 7) {
    const float middle = (kE2m1Levels[code] + kE2m1Levels[code + 1]) / 2;
    const bool tie_goes_up = code % 2 == 1;
    if (magnitude < middle || (magnitude == middle && !tie_goes_up)) break;
    ++code;
  }
  if (code == 0) return 0;
  return code | (std::signbit(quotient) ? 8 : 0);
}

uint8_t EncodeE4m3(float quotient) {
  const float magnitude = std::min(std::fabs(quotient), 448.0f);
  uint32_t code;
  if (magnitude < 0x1p-6f) {
    // Denormals: multiples of 2^-9. 8 is the least normal number.
    code = static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p9f));
  } else {
    // Cut the fraction to 3 bits, to nearest even; exponent bias 127 becomes 7.
    const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
    const uint32_t rounded = (bits + 0x7ffff + ((bits >> 20) & 1)) >> 20;
    code = rounded - ((127 - 7) << 3);
  }
  if (code == 0) return 0;
  return static_cast<uint8_t>(code | (std::signbit(quotient) ? 0x80 : 0));
}

float E4m3Level(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int fraction = code & 7;
  float magnitude;
  if ((code & 0x7f) == 0x7f) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -9);
  } else {
    magnitude = std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  }
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float Level(BlockFormat format, uint8_t code) {
  switch (format) {
    case BlockFormat::kFp8E4m3:
      return E4m3Level(code);
    case BlockFormat::kInt8:
      return static_cast<int8_t>(code);
    default:
      return NibbleLevels(format)[code];
  }
}

// Where code `index` of a strip lies in the code plane.
struct CodePlace {
  CodePlace(BlockFormat format, uint64_t index) {
    const uint64_t bits = CodeBits(format);
    if (bits == 8) {
      byte = index;
      shift = 0;
      return;
    }
    const uint64_t group = bits == 4 ? kNibbleGroup : kPairGroup;
    static_assert(kNibbleGroupBytes == 64 && kPairGroupBytes == 64);
    const uint64_t word = index % 16;
    const uint64_t bit = index % group / 16 * bits;
    byte = index / group * 64 + 4 * word + bit / 8;
    shift = bit % 8;
  }
  uint64_t byte;
  uint64_t shift;
};

// The bfloat16 code `scale`, within what encoders write.
uint16_t Limited(BlockFormat format, uint32_t scale) {
  if (scale < kSmallestScale) return 0;
  return static_cast<uint16_t>(std::min<uint32_t>(scale, LargestScale(format)));
}

}  // namespace

uint16_t ScaleOfAbsmax(BlockFormat format, float absmax, Rounding rounding) {
  if (std::isnan(absmax)) return kNanScale;
  if (std::isinf(absmax)) return kInfiniteScale;
  const float scale = absmax / TopLevel(format);
  if (rounding == Rounding::kNearest) {
    return Limited(format, Bf16FromFloat(scale));
  }
  return Limited(format, (std::bit_cast<uint32_t>(scale) + 0xffff) >> 16);
}

uint16_t ScaleOfSquares(double sum, uint64_t count) {
  if (std::isnan(sum)) return kNanScale;
  if (std::isinf(sum)) return kInfiniteScale;
  if (sum == 0) return 0;
  const double mean = sum / static_cast<double>(count);
  return Limited(BlockFormat::kInt2,
                 Bf16FromFloat(static_cast<float>(std::sqrt(mean))));
}

double SumOfSquares(absl::Span<const float> block) {
  double sums[16] = {};
  for (size_t i = 0; i < block.size(); ++i) {
    sums[i % 16] += double{block[i]} * block[i];
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

float LargestMagnitude(absl::Span<const float> block) {
  // Magnitudes are in the order of their bits, and NaN is above infinity.
  uint32_t absmax = 0;
  for (const float value : block) {
    absmax = std::max(absmax, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  }
  return std::bit_cast<float>(absmax);
}

uint16_t ScaleOfBlock(BlockFormat format, absl::Span<const float> block,
                      Rounding rounding) {
  if (format == BlockFormat::kInt2 && rounding == Rounding::kNearest) {
    return ScaleOfSquares(SumOfSquares(block), block.size());
  }
  return ScaleOfAbsmax(format, LargestMagnitude(block), rounding);
}

uint8_t EncodeValue(BlockFormat format, uint16_t scale, float value) {
  if (scale == 0 || scale >= kInfiniteScale) return 0;
  const float scale_value = FloatFromBf16(scale);
  if (format == BlockFormat::kE3m0) return EncodeE3m0(scale_value, value);
  const float reciprocal = 1.0f / scale_value;
  const float quotient = value * reciprocal;
  switch (format) {
    case BlockFormat::kFp8E4m3:
      return EncodeE4m3(quotient);
    case BlockFormat::kInt8:
      return static_cast<uint8_t>(EncodeInteger(quotient, 127));
    case BlockFormat::kInt4:
      return static_cast<uint8_t>(EncodeInteger(quotient, 7) & 15);
    case BlockFormat::kNf4:
      return EncodeNf4(quotient);
    case BlockFormat::kInt2:
      return EncodeInt2(quotient);
    default:
      return EncodeE2m1(quotient);
  }
}

uint8_t EncodeValueStochastically(BlockFormat format, uint16_t scale,
                                  float value, uint32_t random) {
  if (scale == 0 || scale >= kInfiniteScale) return 0;
  const float top = TopLevel(format);
  const float quotient =
      std::clamp(value * (1.0f / FloatFromBf16(scale)), -top, top);
  switch (format) {
    case BlockFormat::kInt8:
      return static_cast<uint8_t>(IntegerBelowOrAbove(quotient, random));
    case BlockFormat::kInt4:
      return static_cast<uint8_t>(IntegerBelowOrAbove(quotient, random) & 15);
    case BlockFormat::kNf4:
      return EncodeLevelStochastically(format, -7, quotient, random);
    case BlockFormat::kInt2:
      return EncodeLevelStochastically(format, -2, quotient, random);
    case BlockFormat::kFp8E4m3:
      return EncodeMinifloatStochastically(7, 3, 7, quotient, random);
    case BlockFormat::kE2m1:
      return EncodeMinifloatStochastically(1, 1, 3, quotient, random);
    case BlockFormat::kE3m0:
      break;
  }
  return EncodeMinifloatStochastically(7, 0, 3, quotient, random);
}

float DecodeValue(BlockFormat format, uint16_t scale, uint8_t code) {
  return Level(format, code) * FloatFromBf16(scale);
}

std::string EncodeBlocks(BlockFormat format, uint32_t block_size,
                         absl::Span<const float> values,
                         const EncodeOptions& options, uint64_t vector_begin) {
  const uint64_t codes = ScalePlaneBytes(values.size(), block_size);
  std::string encoded(codes + CodePlaneBytes(format, values.size()), '\0');
  for (uint64_t begin = 0; begin < values.size(); begin += block_size) {
    const uint16_t scale = ScaleOfBlock(
        format, values.subspan(begin, block_size), options.rounding);
    const uint64_t block = begin / block_size;
    encoded[2 * block] = static_cast<char>(scale & 0xff);
    encoded[2 * block + 1] = static_cast<char>(scale >> 8);
    const uint64_t end = std::min<uint64_t>(begin + block_size, values.size());
    for (uint64_t i = begin; i < end; ++i) {
      const uint8_t code =
          options.rounding == Rounding::kNearest
              ? EncodeValue(format, scale, values[i])
              : EncodeValueStochastically(
                    format, scale, values[i],
                    RoundingRandom(options.seed, vector_begin + i));
      const CodePlace place(format, i);
      char& byte = encoded[codes + place.byte];
      byte = static_cast<char>(byte | (code << place.shift));
    }
  }
  return encoded;
}

std::vector<float> DecodeBlocks(BlockFormat format, uint32_t block_size,
                                absl::string_view encoded, uint64_t values) {
  const uint64_t codes = ScalePlaneBytes(values, block_size);
  const auto byte = [&encoded](uint64_t index) {
    return static_cast<uint8_t>(encoded[index]);
  };
  std::vector<float> decoded(values);
  for (uint64_t i = 0; i < values; ++i) {
    const uint64_t block = i / block_size;
    const uint16_t scale =
        static_cast<uint16_t>(byte(2 * block) | (byte(2 * block + 1) << 8));
    const CodePlace place(format, i);
    const uint8_t mask = static_cast<uint8_t>((1 << CodeBits(format)) - 1);
    const auto code =
        static_cast<uint8_t>((byte(codes + place.byte) >> place.shift) & mask);
    decoded[i] = DecodeValue(format, scale, code);
  }
  return decoded;
}

}  // namespace causeway
