// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_status.h"
#include "worker/collective/vector_sum.h"

namespace causeway {
namespace {

constexpr int kThreads = 256;
// Enough for every GPU; each block goes on over the rest.
constexpr int64_t kMaxBlocks = 2048;

__global__ void SumKernel(VectorsToSum vectors, int64_t size, float* to) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += stride) {
    float sum = vectors.from[0][i];
    for (int j = 1; j < vectors.count; ++j) sum += vectors.from[j][i];
    to[i] = sum;
  }
}

}  // namespace

absl::Status SumVectors(const VectorsToSum& vectors, int64_t size, float* to,
                        cudaStream_t stream) {
  if (size == 0) return absl::OkStatus();
  const int64_t needed = (size + kThreads - 1) / kThreads;
  const int blocks =
      static_cast<int>(needed < kMaxBlocks ? needed : kMaxBlocks);
  SumKernel<<<blocks, kThreads, 0, stream>>>(vectors, size, to);
  return CudaStatus(cudaGetLastError(), "starting a reduce-scatter on the GPU");
}

}  // namespace causeway
