// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

// Where the 4-bit code `index` of a vector lies.
struct NibblePlace {
  explicit NibblePlace(uint64_t index) {
    const uint64_t word = index % 16;
    const uint64_t nibble = index % kNibbleGroup / 16;
    byte = index / kNibbleGroup * kNibbleGroupBytes + 4 * word + nibble / 2;
    shift = nibble % 2 * 4;
  }
  uint64_t byte;
  uint64_t shift;
};

}  // namespace

uint16_t ScaleOfAbsmax(BlockFormat format, float absmax) {
  if (std::isnan(absmax)) return kNanScale;
  if (std::isinf(absmax)) return kInfiniteScale;
  const uint16_t scale = Bf16FromFloat(absmax / TopLevel(format));
  if (scale < kSmallestScale) return 0;
  return std::min(scale, LargestScale(format));
}

uint16_t ScaleOfBlock(BlockFormat format, absl::Span<const float> block) {
  // Magnitudes are in the order of their bits, and NaN is above infinity.
  uint32_t absmax = 0;
  for (const float value : block) {
    absmax = std::max(absmax, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  }
  return ScaleOfAbsmax(format, std::bit_cast<float>(absmax));
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
    default:
      return EncodeE2m1(quotient);
  }
}

float DecodeValue(BlockFormat format, uint16_t scale, uint8_t code) {
  return Level(format, code) * FloatFromBf16(scale);
}

std::string EncodeBlocks(BlockFormat format, uint32_t block_size,
                         absl::Span<const float> values) {
  const uint64_t codes = ScalePlaneBytes(values.size(), block_size);
  std::string encoded(codes + CodePlaneBytes(format, values.size()), '\0');
  for (uint64_t begin = 0; begin < values.size(); begin += block_size) {
    const uint16_t scale =
        ScaleOfBlock(format, values.subspan(begin, block_size));
    const uint64_t block = begin / block_size;
    encoded[2 * block] = static_cast<char>(scale & 0xff);
    encoded[2 * block + 1] = static_cast<char>(scale >> 8);
    const uint64_t end = std::min<uint64_t>(begin + block_size, values.size());
    for (uint64_t i = begin; i < end; ++i) {
      const uint8_t code = EncodeValue(format, scale, values[i]);
      if (CodeBits(format) == 8) {
        encoded[codes + i] = static_cast<char>(code);
      } else {
        const NibblePlace place(i);
        char& byte = encoded[codes + place.byte];
        byte = static_cast<char>(byte | (code << place.shift));
      }
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
    uint8_t code;
    if (CodeBits(format) == 8) {
      code = byte(codes + i);
    } else {
      const NibblePlace place(i);
      code = (byte(codes + place.byte) >> place.shift) & 15;
    }
    decoded[i] = DecodeValue(format, scale, code);
  }
  return decoded;
}

}  // namespace causeway
