// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels over the fused projection to queries, keys and values: biases,
// QK-norm, and their gradients. worker/model/ops.h defines what they compute.
// Sums are fp32, in an order that depends on sizes only. Widths of rows and
// heads are multiples of kVector, and heads have at most kMostHeadDim values.
#ifndef WORKER_MODEL_CUDA_PROJECTION_KERNELS_H_
#define WORKER_MODEL_CUDA_PROJECTION_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "worker/model/cuda/device_code.h"
#include "worker/model/ops.h"

namespace causeway {

inline constexpr int64_t kMostHeadDim = 128;
static_assert(kMostHeadDim <= int64_t{kWarpSize} * kVector);

static __global__ void AddBiasKernel(const float* bias, int64_t rows,
                                     int64_t width, Bf16* values) {
  const int64_t row_vectors = width / kVector;
  for (int64_t i = GlobalThread(); i < rows * row_vectors;
       i += GlobalThreads()) {
    float sum[kVector];
    float added[kVector];
    LoadVector(values + i * kVector, sum);
    LoadVector(bias + i % row_vectors * kVector, added);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += added[j];
    StoreVector(sum, values + i * kVector);
  }
}

// partial_sums[block] <- the sum of the block's rows: one row, and those that
// follow it by the grid's stride.
static __global__ void PartialColumnSumKernel(const Bf16* values, int64_t rows,
                                              int64_t width,
                                              float* partial_sums) {
  for (int64_t v = threadIdx.x; v < width / kVector; v += blockDim.x) {
    float sums[kVector] = {};
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      float added[kVector];
      LoadVector(values + row * width + v * kVector, added);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[j] += added[j];
    }
    StoreVector(sums, partial_sums + int64_t{blockIdx.x} * width + v * kVector);
  }
}

// Each warp takes one head, and each lane a vector of it; lanes beyond the head
// only take part in the sum.
static __global__ void QkNormKernel(AttentionShape shape, const float* gains,
                                    float epsilon, Bf16* qkv, Bf16* raw,
                                    float* inverse_rms) {
  const int64_t index = GlobalThread() / kWarpSize;
  if (index >= shape.rows() * shape.qk_heads()) return;
  const int64_t row = index / shape.qk_heads();
  const int64_t head = index - row * shape.qk_heads();
  const int64_t column = int64_t{LaneIndex()} * kVector;
  const bool has_values = column < shape.head_dim;
  Bf16* const at =
      qkv + row * shape.qkv_width() + head * shape.head_dim + column;
  float values[kVector] = {};
  if (has_values) LoadVector(at, values);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kVector; ++j) squares += values[j] * values[j];
  squares = WarpSum(squares);
  const float scale =
      1 / std::sqrt(squares / static_cast<float>(shape.head_dim) + epsilon);
  if (LaneIndex() == 0) inverse_rms[index] = scale;
  if (!has_values) return;
  StoreVector(values, raw + index * shape.head_dim + column);
  float gain[kVector];
  LoadVector(gains + (head < shape.heads ? 0 : shape.head_dim) + column, gain);
#pragma unroll
  for (int j = 0; j < kVector; ++j) values[j] = values[j] * scale * gain[j];
  StoreVector(values, at);
}

// Each warp takes a row and advances by the grid's stride, first for the query
// heads, then for the key heads. partial_gains is [blocks][2][head_dim]: sums
// over the rows of each block.
inline constexpr uint32_t kQkNormBackwardThreads = 256;
static __global__ void QkNormBackwardKernel(AttentionShape shape,
                                            const Bf16* raw,
                                            const float* inverse_rms,
                                            const float* gains, Bf16* d_qkv,
                                            float* partial_gains) {
  constexpr uint32_t kWarps = kQkNormBackwardThreads / kWarpSize;
  __shared__ float warp_sums[kWarps][kMostHeadDim];
  const int64_t column = int64_t{LaneIndex()} * kVector;
  const bool has_values = column < shape.head_dim;
  for (int kind = 0; kind < 2; ++kind) {
    const int64_t first = kind == 0 ? 0 : shape.heads;
    const int64_t end = kind == 0 ? shape.heads : shape.qk_heads();
    float gain[kVector] = {};
    float d_gain[kVector] = {};
    if (has_values) LoadVector(gains + kind * shape.head_dim + column, gain);
    for (int64_t row = GlobalThread() / kWarpSize; row < shape.rows();
         row += GlobalThreads() / kWarpSize) {
      for (int64_t head = first; head < end; ++head) {
        const int64_t index = row * shape.qk_heads() + head;
        Bf16* const at =
            d_qkv + row * shape.qkv_width() + head * shape.head_dim + column;
        float d[kVector] = {};
        float values[kVector] = {};
        if (has_values) {
          LoadVector(at, d);
          LoadVector(raw + index * shape.head_dim + column, values);
        }
        float dot = 0;
#pragma unroll
        for (int j = 0; j < kVector; ++j) dot += gain[j] * d[j] * values[j];
        const float s = inverse_rms[index];
        const float mean = WarpSum(dot) / static_cast<float>(shape.head_dim);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          d_gain[j] += d[j] * values[j] * s;
          d[j] = s * (gain[j] * d[j] - values[j] * s * s * mean);
        }
        if (has_values) StoreVector(d, at);
      }
    }
    if (has_values) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        warp_sums[WarpIndex()][column + j] = d_gain[j];
      }
    }
    __syncthreads();
    if (threadIdx.x < shape.head_dim) {
      float sum = 0;
      for (uint32_t warp = 0; warp < kWarps; ++warp) {
        sum += warp_sums[warp][threadIdx.x];
      }
      partial_gains[(2 * int64_t{blockIdx.x} + kind) * shape.head_dim +
                    threadIdx.x] = sum;
    }
    __syncthreads();
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_PROJECTION_KERNELS_H_
