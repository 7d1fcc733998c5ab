// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/testing/block_values.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "quantization/formats/dense_reference.h"
#include "quantization/formats/testing/block_reference.h"

namespace causeway {

const char* BlockFormatName(BlockFormat format) {
  switch (format) {
    case BlockFormat::kInt8:
      return "Int8";
    case BlockFormat::kInt4:
      return "Int4";
    case BlockFormat::kE3m0:
      return "E3m0";
  }
  return "";
}

std::vector<uint32_t> BitsOf(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000
                                     : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

std::vector<float> GaussianValues(uint64_t count, uint32_t seed,
                                  float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> ValuesOfAnyBits(uint64_t count) {
  std::mt19937 random(2);
  std::vector<float> values;
  while (values.size() < count) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

std::vector<float> DenormalValues(uint64_t count) {
  std::mt19937 random(3);
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    const float limit = i / 256 % 2 == 0 ? 0x1p-126f : 0x1p-91f;
    values[i] = std::ldexp(limit, -static_cast<int>(random() % 24)) *
                (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return values;
}

std::vector<float> ValuesWithOutliers(uint64_t count) {
  std::vector<float> values = GaussianValues(count, 4, 1e-3f);
  const float largest = std::numeric_limits<float>::max();
  for (uint64_t i = 7; i < count; i += 200) {
    values[i] = i % 3 == 0 ? largest : i % 3 == 1 ? -3.3e38f : 1e10f;
  }
  return values;
}

std::vector<float> ValuesBetweenLevels(BlockFormat format, uint32_t block_size,
                                       uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t codes = 1u << CodeBits(format);
  const auto random_level = [&] {
    return DecodeValue(format, Bf16FromFloat(1),
                       static_cast<uint8_t>(random() % codes));
  };
  std::vector<float> values(count);
  float scale = 1;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % block_size == 0) {
      scale = std::ldexp(static_cast<float>(128 + random() % 128),
                         static_cast<int>(random() % 20) - 10);
      values[i] = TopLevel(format) * scale;
      continue;
    }
    float value = (random_level() + random_level()) / 2 * scale;
    if (!(std::fabs(value) < TopLevel(format) * scale)) value = 0;
    const float toward = random() % 2 == 0 ? -INFINITY : INFINITY;
    for (uint64_t k = random() % 3; k > 0; --k) {
      value = std::nextafter(value, toward);
    }
    values[i] = value;
  }
  return values;
}

std::vector<float> ValuesWithBad(float bad, uint32_t block_size,
                                 uint64_t count) {
  std::vector<float> values = GaussianValues(count, 6, 1.0f);
  for (uint64_t i = 0; i < count; ++i) {
    if (i / block_size % 2 == 0 || i % 1111 == 0) values[i] = bad;
  }
  return values;
}

}  // namespace causeway
