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
#include "worker/model/cuda/row_kernels.h"
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

// partial_sums[block] <- the sum of the block's rows, which are a grid's stride
// apart.
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

// Each warp takes one group. It reads the group twice, the second time from a
// cache.
static __global__ void QkNormKernel(QkNormShape shape, const float* gains,
                                    float epsilon, Bf16* qkv, Bf16* raw,
                                    float* inverse_rms) {
  const int64_t index = GlobalThread() / kWarpSize;
  if (index >= shape.rows * shape.groups()) return;
  const int64_t row = index / shape.groups();
  const int64_t group = index - row * shape.groups();
  const QkNormPart part = group < shape.query.groups ? shape.query : shape.key;
  const int64_t place = part.offset + (group - part.first_group) * part.width;
  Bf16* const at = qkv + row * shape.row_width + place;
  Bf16* const kept = raw + row * shape.qk_width + place;
  const int64_t first = int64_t{LaneIndex()} * kVector;
  float squares = 0;
  for (int64_t i = first; i < part.width; i += kWarpValues) {
    float values[kVector];
    LoadVector(at + i, values);
    StoreVector(values, kept + i);
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += values[j] * values[j];
  }
  squares = WarpSum(squares);
  const float scale =
      1 / std::sqrt(squares / static_cast<float>(part.width) + epsilon);
  if (LaneIndex() == 0) inverse_rms[index] = scale;
  for (int64_t i = first; i < part.width; i += kWarpValues) {
    float values[kVector];
    float gain[kVector];
    LoadVector(at + i, values);
    LoadVector(gains + part.gain + i, gain);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] = values[j] * scale * gain[j];
    StoreVector(values, at + i);
  }
}

// Groups have at most kMostHeadDim values. Each warp takes a row and advances
// by the grid's stride, first for the queries, then for the keys. partial_gains
// is [blocks][gains]: sums over the rows of each block.
inline constexpr uint32_t kQkNormBackwardThreads = 256;
static __global__ void QkNormBackwardKernel(QkNormShape shape, const Bf16* raw,
                                            const float* inverse_rms,
                                            const float* gains, Bf16* d_qkv,
                                            float* partial_gains) {
  constexpr uint32_t kWarps = kQkNormBackwardThreads / kWarpSize;
  __shared__ float warp_sums[kWarps][kMostHeadDim];
  const int64_t column = int64_t{LaneIndex()} * kVector;
  for (int kind = 0; kind < 2; ++kind) {
    const QkNormPart part = kind == 0 ? shape.query : shape.key;
    const bool has_values = column < part.width;
    float gain[kVector] = {};
    float d_gain[kVector] = {};
    if (has_values) LoadVector(gains + part.gain + column, gain);
    for (int64_t row = GlobalThread() / kWarpSize; row < shape.rows;
         row += GlobalThreads() / kWarpSize) {
      for (int64_t group = 0; group < part.groups; ++group) {
        const int64_t place = part.offset + group * part.width + column;
        Bf16* const at = d_qkv + row * shape.row_width + place;
        float d[kVector] = {};
        float values[kVector] = {};
        if (has_values) {
          LoadVector(at, d);
          LoadVector(raw + row * shape.qk_width + place, values);
        }
        float dot = 0;
#pragma unroll
        for (int j = 0; j < kVector; ++j) dot += gain[j] * d[j] * values[j];
        const float s =
            inverse_rms[row * shape.groups() + part.first_group + group];
        const float mean = WarpSum(dot) / static_cast<float>(part.width);
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
    if (threadIdx.x < part.width) {
      float sum = 0;
      for (uint32_t warp = 0; warp < kWarps; ++warp) {
        sum += warp_sums[warp][threadIdx.x];
      }
      partial_gains[blockIdx.x * shape.gains() + part.gain + threadIdx.x] = sum;
    }
    __syncthreads();
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_PROJECTION_KERNELS_H_
