// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/testing/block_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "quantization/formats/dense_reference.h"

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

int CodeMask(BlockFormat format) { return (1 << CodeBits(format)) - 1; }

float Level(BlockFormat format, uint8_t code) {
  if (format == BlockFormat::kInt8) return static_cast<int8_t>(code);
  return NibbleLevels(format)[code];
}

// The place of code `index` of a strip in the code plane.
struct CodePlace {
  CodePlace(BlockFormat format, uint64_t index) {
    if (CodeBits(format) == 8) {
      byte = index;
      shift = 0;
      return;
    }
    const uint64_t row = index % kNibbleGroup / 16;
    byte = index / kNibbleGroup * kNibbleGroupBytes + index % 16 * 4 + row / 2;
    shift = row % 2 * 4;
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

double SumOfBlockSquares(absl::Span<const float> block) {
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

uint8_t EncodeValue(BlockFormat format, uint16_t scale, float value) {
  if (scale == 0 || scale >= kInfiniteScale) return 0;
  const float scale_value = FloatFromBf16(scale);
  if (format == BlockFormat::kE3m0) return EncodeE3m0(scale_value, value);
  const float top = TopLevel(format);
  const float quotient = value * (1.0f / scale_value);
  const float level = std::clamp(std::nearbyint(quotient), -top, top);
  return static_cast<uint8_t>(static_cast<int>(level) & CodeMask(format));
}

float DecodeValue(BlockFormat format, uint16_t scale, uint8_t code) {
  return Level(format, code) * FloatFromBf16(scale);
}

std::string EncodeBlocks(BlockFormat format, uint32_t block_size,
                         absl::Span<const float> values) {
  const uint64_t codes = ScalePlaneBytes(values.size(), block_size);
  std::string encoded(codes + CodePlaneBytes(format, values.size()), '\0');
  for (uint64_t begin = 0; begin < values.size(); begin += block_size) {
    const uint16_t scale = ScaleOfAbsmax(
        format, LargestMagnitude(values.subspan(begin, block_size)));
    const uint64_t block = begin / block_size;
    encoded[2 * block] = static_cast<char>(scale & 0xff);
    encoded[2 * block + 1] = static_cast<char>(scale >> 8);
    const uint64_t end = std::min<uint64_t>(begin + block_size, values.size());
    for (uint64_t i = begin; i < end; ++i) {
      const uint8_t code = EncodeValue(format, scale, values[i]);
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
    const auto code = static_cast<uint8_t>(
        (byte(codes + place.byte) >> place.shift) & CodeMask(format));
    decoded[i] = DecodeValue(format, scale, code);
  }
  return decoded;
}

}  // namespace causeway
