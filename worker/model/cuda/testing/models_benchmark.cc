// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/testing/models_benchmark.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>

#include "common/status_macros.h"

namespace causeway {

absl::StatusOr<double> MedianSeconds(const std::function<absl::Status()>& step,
                                     int repetitions) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions + 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(step());
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - begin;
    if (i >= 2) seconds.push_back(elapsed.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2,
                   seconds.end());
  return seconds[repetitions / 2];
}

std::vector<float> SomeNormalValues(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> some(1 << 20);
  for (float& value : some) value = normal(random);
  return some;
}

std::vector<uint16_t> AsBf16Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return bits;
}

}  // namespace causeway
