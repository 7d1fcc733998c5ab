// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "quantization/formats/block_format.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {

double EcqUnit(double block_mean_square, double strip_mean_square) {
  return std::sqrt(std::sqrt(block_mean_square * strip_mean_square));
}

uint16_t EcqScale(double step, double unit, float absmax) {
  const uint16_t least = BlockScale<BlockFormat::kInt8, /*kUp=*/true>(absmax);
  if (least >= kInfiniteScale) return least;
  const uint16_t scale =
      std::max(least, Bf16FromFloat(static_cast<float>(step * unit)));
  if (scale < kSmallestScale) return 0;
  return std::min(scale, LargestScale(BlockFormat::kInt8));
}

int8_t EcqCode(uint16_t scale, float offset, float value) {
  if (scale == 0 || scale >= kInfiniteScale) return 0;
  const float quotient = std::fabs(value) * (1.0f / FloatFromBf16(scale));
  const int magnitude = static_cast<int>(
      std::min(quotient + offset, static_cast<float>(kEcqTopCode)));
  return static_cast<int8_t>(std::signbit(value) ? -magnitude : magnitude);
}

float EcqValue(uint16_t scale, uint8_t shift, int8_t code) {
  float level = 0;
  if (code != 0) {
    level = static_cast<float>(std::abs(int{code})) -
            static_cast<float>(shift) / 256;
  }
  return (code < 0 ? -level : level) * FloatFromBf16(scale);
}

}  // namespace causeway
