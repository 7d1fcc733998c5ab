// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The models of ops_cuda_benchmark, and how it measures.
#ifndef WORKER_MODEL_CUDA_TESTING_MODELS_BENCHMARK_H_
#define WORKER_MODEL_CUDA_TESTING_MODELS_BENCHMARK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
absl::StatusOr<double> MedianSeconds(const std::function<absl::Status()>& step,
                                     int repetitions = 15);

// Returns normal values; arrays repeat them, which makes no difference to a
// kernel, while zeros would be faster.
std::vector<float> SomeNormalValues(float deviation);

// Returns the values without the bits that bf16 lacks.
std::vector<uint16_t> AsBf16Bits(const std::vector<float>& values);

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_TESTING_MODELS_BENCHMARK_H_
