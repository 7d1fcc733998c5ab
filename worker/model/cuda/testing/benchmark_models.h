// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The models of ops_cuda_benchmark, and how it measures.
#ifndef WORKER_MODEL_CUDA_TESTING_BENCHMARK_MODELS_H_
#define WORKER_MODEL_CUDA_TESTING_BENCHMARK_MODELS_H_

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"

namespace causeway {

struct BenchmarkModel {
  const char* name;
  int layers;
  int hidden;
  int intermediate;
  int heads;
  int length;
  int vocab;
  // The most sequences in a micro-batch; fewer where memory is short.
  int micro_batch;
};

// Returns the median seconds of `step`, after two steps to warm up.
inline absl::StatusOr<double> MedianSeconds(
    const std::function<absl::Status()>& step, int repetitions = 15) {
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

// Returns normal values; arrays repeat them, which makes no difference to a
// kernel, while zeros would be faster.
inline std::vector<float> SomeNormalValues(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> some(1 << 20);
  for (float& value : some) value = normal(random);
  return some;
}

// Returns the values without the bits that bf16 lacks.
inline std::vector<uint16_t> AsBf16Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return bits;
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_TESTING_BENCHMARK_MODELS_H_
