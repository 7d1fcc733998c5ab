// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernel of a reduce-scatter on one GPU.
#ifndef WORKER_COLLECTIVE_VECTOR_SUM_H_
#define WORKER_COLLECTIVE_VECTOR_SUM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace causeway {

inline constexpr int kMaxVectorsSummed = 64;

// By value: kernel arguments lie in constant memory.
struct VectorsToSum {
  const float* from[kMaxVectorsSummed];
  int count = 0;
};

// to[i] <- from[0][i] + from[1][i] + ..., added in this order; device memory.
// `to` may be one of the vectors. Asynchronous on `stream`. Errors of
// CudaStatus.
absl::Status SumVectors(const VectorsToSum& vectors, int64_t size, float* to,
                        cudaStream_t stream);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_VECTOR_SUM_H_
