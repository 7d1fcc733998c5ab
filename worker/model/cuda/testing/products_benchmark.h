// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the matrix products of a model's training step by themselves.
#ifndef WORKER_MODEL_CUDA_TESTING_PRODUCTS_BENCHMARK_H_
#define WORKER_MODEL_CUDA_TESTING_PRODUCTS_BENCHMARK_H_

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/model/cuda/testing/models_benchmark.h"

namespace causeway {

// Runs on device 0. `logit_rows` is the number of rows of logits at a time.
absl::StatusOr<nlohmann::json> MeasureProducts(const BenchmarkModel& model,
                                               int64_t logit_rows);

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_TESTING_PRODUCTS_BENCHMARK_H_
