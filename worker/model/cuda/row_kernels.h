// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels over rows of activations: RMSNorm, embedding, cross-entropy, and
// their gradients. worker/model/ops.h defines what they compute. Sums are fp32,
// in an order that depends on sizes only. `width` is a multiple of kVector.
#ifndef WORKER_MODEL_CUDA_ROW_KERNELS_H_
#define WORKER_MODEL_CUDA_ROW_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "worker/model/cuda/device_code.h"

namespace causeway {

// The number of values that a warp processes at a time.
inline constexpr int64_t kWarpValues = int64_t{kWarpSize} * kVector;

// Each warp takes one row. It reads the row twice, the second time from a
// cache.
template <bool kAdd>
__global__ void RmsNormKernel(const Bf16* x, const Bf16* delta,
                              const float* gain, int64_t rows, int64_t width,
                              float epsilon, Bf16* sum, float* inverse_rms,
                              Bf16* normalized) {
  const int64_t row = GlobalThread() / kWarpSize;
  if (row >= rows) return;
  const int64_t begin = row * width;
  const int64_t first = int64_t{LaneIndex()} * kVector;
  float squares = 0;
  for (int64_t i = first; i < width; i += kWarpValues) {
    float values[kVector];
    LoadVector(x + begin + i, values);
    if constexpr (kAdd) {
      float added[kVector];
      LoadVector(delta + begin + i, added);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] += added[j];
      StoreVector(values, sum + begin + i);
      // The norm is that of the stored values, so that the backward pass sees
      // the same.
      LoadVector(sum + begin + i, values);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += values[j] * values[j];
  }
  squares = WarpSum(squares);
  const float scale =
      1 / std::sqrt(squares / static_cast<float>(width) + epsilon);
  if (LaneIndex() == 0) inverse_rms[row] = scale;
  const Bf16* const from = kAdd ? sum : x;
  for (int64_t i = first; i < width; i += kWarpValues) {
    float values[kVector];
    float gains[kVector];
    LoadVector(from + begin + i, values);
    LoadVector(gain + i, gains);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] = values[j] * scale * gains[j];
    StoreVector(values, normalized + begin + i);
  }
}

// The distances between rows: of d_normalized and d_x, of x and normalized, and
// of inverse_rms.
struct RowStrides {
  int64_t d = 0;
  int64_t x = 0;
  int64_t inverse_rms = 1;
};

// Each block takes a row and advances by the grid's stride. Dynamic shared
// memory has `width` floats. partial_gains is [blocks][width]: sums over the
// rows of each block. d_x may be d_normalized, and normalized may be null.
static __global__ void RmsNormBackwardKernel(
    const Bf16* d_normalized, const Bf16* x, const float* inverse_rms,
    const float* gain, int64_t rows, int64_t width, RowStrides strides,
    bool accumulate, Bf16* d_x, float* partial_gains, Bf16* normalized) {
  // Each thread accesses only its own columns. Value j of vector v is at
  // j * vectors + v, so that the threads of a warp access different banks.
  float* const d_gain = reinterpret_cast<float*>(DynamicShared());
  const int64_t vectors = width / kVector;
  for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) d_gain[j * vectors + v] = 0;
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t d_row = row * strides.d;
    const int64_t x_row = row * strides.x;
    float dot = 0;
    for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      float d[kVector];
      float values[kVector];
      float gains[kVector];
      LoadVector(d_normalized + d_row + v * kVector, d);
      LoadVector(x + x_row + v * kVector, values);
      LoadVector(gain + v * kVector, gains);
#pragma unroll
      for (int j = 0; j < kVector; ++j) dot += gains[j] * d[j] * values[j];
    }
    const float s = inverse_rms[row * strides.inverse_rms];
    const float mean = BlockSum(dot) / static_cast<float>(width);
    for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      const int64_t d_at = d_row + v * kVector;
      const int64_t x_at = x_row + v * kVector;
      float d[kVector];
      float values[kVector];
      float gains[kVector];
      float gradient[kVector] = {};
      LoadVector(d_normalized + d_at, d);
      LoadVector(x + x_at, values);
      LoadVector(gain + v * kVector, gains);
      if (accumulate) LoadVector(d_x + d_at, gradient);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        d_gain[j * vectors + v] += d[j] * values[j] * s;
        gradient[j] += s * (gains[j] * d[j] - values[j] * s * s * mean);
        values[j] = values[j] * s * gains[j];
      }
      StoreVector(gradient, d_x + d_at);
      if (normalized != nullptr) StoreVector(values, normalized + x_at);
    }
  }
  for (int64_t v = threadIdx.x; v < vectors; v += blockDim.x) {
    float sums[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) sums[j] = d_gain[j * vectors + v];
    StoreVector(sums,
                partial_gains + int64_t{blockIdx.x} * width + v * kVector);
  }
}

// sums[column] += the sum of the column over `rows` rows of fp32; Sum is float
// or Bf16. Blocks have 256 threads: 8 groups of rows for 32 columns.
inline constexpr uint32_t kColumnSumThreads = 256;
template <typename Sum>
__global__ void ColumnSumKernel(const float* values, int64_t rows,
                                int64_t width, Sum* sums) {
  constexpr uint32_t kGroups = kColumnSumThreads / kWarpSize;
  __shared__ float group_sums[kGroups][kWarpSize];
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + LaneIndex();
  float sum = 0;
  if (column < width) {
    for (int64_t row = WarpIndex(); row < rows; row += kGroups) {
      sum += values[row * width + column];
    }
  }
  group_sums[WarpIndex()][LaneIndex()] = sum;
  __syncthreads();
  if (WarpIndex() == 0 && column < width) {
    sum = 0;
    for (uint32_t group = 0; group < kGroups; ++group) {
      sum += group_sums[group][LaneIndex()];
    }
    AddTo(sum, sums + column);
  }
}

// `size` is a multiple of kVector.
static __global__ void AddKernel(const Bf16* x, const Bf16* y, int64_t size,
                                 Bf16* to) {
  for (int64_t i = GlobalThread() * kVector; i < size;
       i += GlobalThreads() * kVector) {
    float sum[kVector];
    float added[kVector];
    LoadVector(x + i, sum);
    LoadVector(y + i, added);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += added[j];
    StoreVector(sum, to + i);
  }
}

static __global__ void EmbeddingKernel(const int32_t* tokens,
                                       const float* table, int64_t rows,
                                       int64_t width, Bf16* output) {
  const int64_t row_vectors = width / kVector;
  for (int64_t i = GlobalThread(); i < rows * row_vectors;
       i += GlobalThreads()) {
    const int64_t row = i / row_vectors;
    const float* const from =
        table + tokens[row] * width + (i - row * row_vectors) * kVector;
    float values[kVector];
    LoadVector(from, values);
    StoreVector(values, output + i * kVector);
  }
}

// Sorts rows by their tokens, and rows of the same token by number: the place
// of a row is the count of rows that come before it. That is quadratic, but
// compares tokens in shared memory; its time is negligible in a training step.
// Blocks have kSortThreads threads.
inline constexpr uint32_t kSortThreads = 256;
static __global__ void SortTokensKernel(const int32_t* tokens, int64_t rows,
                                        int32_t* sorted_tokens,
                                        int32_t* sorted_rows) {
  __shared__ int32_t tile[kSortThreads];
  const int64_t row = GlobalThread();
  const int32_t token = row < rows ? tokens[row] : 0;
  int32_t place = 0;
  for (int64_t begin = 0; begin < rows; begin += kSortThreads) {
    __syncthreads();
    if (begin + threadIdx.x < rows) {
      tile[threadIdx.x] = tokens[begin + threadIdx.x];
    }
    __syncthreads();
    const int count = static_cast<int>(
        rows - begin < kSortThreads ? rows - begin : kSortThreads);
    const int64_t before = row - begin;
    for (int i = 0; i < count; ++i) {
      place += tile[i] < token || (tile[i] == token && i < before) ? 1 : 0;
    }
  }
  if (row < rows) {
    sorted_tokens[place] = token;
    sorted_rows[place] = static_cast<int32_t>(row);
  }
}

// d_table[token] += the sum of its rows; Sum is float or Bf16. There is a block
// of 256 threads for each place among the sorted rows and each 256 columns. A
// block does nothing unless the place is its token's first.
inline constexpr uint32_t kEmbeddingThreads = 256;
template <typename Sum>
__global__ void EmbeddingBackwardKernel(const int32_t* sorted_tokens,
                                        const int32_t* sorted_rows,
                                        const Bf16* d_output, int64_t rows,
                                        int64_t width, Sum* d_table) {
  constexpr uint32_t kGroups = kEmbeddingThreads / kWarpSize;
  static_assert(kWarpValues == kEmbeddingThreads);
  __shared__ float group_sums[kGroups][kWarpValues];
  const int64_t first = blockIdx.x;
  const int32_t token = sorted_tokens[first];
  if (first > 0 && sorted_tokens[first - 1] == token) return;
  const int64_t begin = int64_t{blockIdx.y} * kWarpValues;
  const int64_t column = begin + int64_t{LaneIndex()} * kVector;
  float sums[kVector] = {};
  if (column < width) {
    for (int64_t i = first + WarpIndex(); i < rows && sorted_tokens[i] == token;
         i += kGroups) {
      float values[kVector];
      LoadVector(d_output + sorted_rows[i] * width + column, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[j] += values[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    group_sums[WarpIndex()][LaneIndex() * kVector + j] = sums[j];
  }
  __syncthreads();
  if (begin + threadIdx.x >= width) return;
  float sum = 0;
  for (uint32_t group = 0; group < kGroups; ++group) {
    sum += group_sums[group][threadIdx.x];
  }
  AddTo(sum, d_table + token * width + begin + threadIdx.x);
}

// A running softmax: the largest value, and the sum of exp(value - largest).
struct SoftmaxSum {
  float largest = -HUGE_VALF;
  float sum = 0;

  CAUSEWAY_DEVICE void Add(float value) {
    // A NaN is added to the sum.
    if (value > largest) {
      sum = sum * expf(largest - value) + 1;
      largest = value;
    } else {
      sum += expf(value - largest);
    }
  }
  // Merges two sums. The SoftmaxSum of no values is neutral.
  CAUSEWAY_DEVICE void Merge(const SoftmaxSum& other) {
    const float both = other.largest > largest ? other.largest : largest;
    const float own = sum == 0 ? 0 : sum * expf(largest - both);
    sum = own + (other.sum == 0 ? 0 : other.sum * expf(other.largest - both));
    largest = both;
  }
};

CAUSEWAY_DEVICE SoftmaxSum BlockSoftmaxSum(SoftmaxSum value) {
  __shared__ float shared[2][kWarpSize];
  for (uint32_t lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    SoftmaxSum other;
    other.largest = ShuffleXor(value.largest, lanes);
    other.sum = ShuffleXor(value.sum, lanes);
    value.Merge(other);
  }
  __syncthreads();
  if (LaneIndex() == 0) {
    shared[0][WarpIndex()] = value.largest;
    shared[1][WarpIndex()] = value.sum;
  }
  __syncthreads();
  SoftmaxSum result;
  for (uint32_t warp = 0; warp < blockDim.x / kWarpSize; ++warp) {
    SoftmaxSum other;
    other.largest = shared[0][warp];
    other.sum = shared[1][warp];
    result.Merge(other);
  }
  return result;
}

// Each block takes one row, kWidth values at a time: kVector where rows are
// aligned to 16 bytes, otherwise 1. Without kGradient the logits are unchanged.
template <bool kGradient, int kWidth>
__global__ void CrossEntropyKernel(const int32_t* targets, int64_t vocab_size,
                                   float scale, Bf16* logits, float* losses) {
  const int64_t row = blockIdx.x;
  Bf16* const of_row = logits + row * vocab_size;
  const int64_t first = int64_t{threadIdx.x} * kWidth;
  const int64_t stride = int64_t{blockDim.x} * kWidth;
  const auto load = [&](int64_t i, float(&values)[kWidth]) {
    if constexpr (kWidth == kVector) {
      LoadVector(of_row + i, values);
    } else {
      values[0] = FromBf16(of_row[i]);
    }
  };
  const int32_t target = targets[row];
  const bool counts = target >= 0;
  const float target_logit = counts ? FromBf16(of_row[target]) : 0;
  SoftmaxSum softmax;
  for (int64_t i = first; i < vocab_size; i += stride) {
    float values[kWidth];
    load(i, values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) softmax.Add(values[j]);
  }
  // After its barriers all threads have read the target's logit.
  softmax = BlockSoftmaxSum(softmax);
  if (threadIdx.x == 0) {
    losses[row] =
        counts ? softmax.largest + logf(softmax.sum) - target_logit : 0;
  }
  if constexpr (kGradient) {
    const float share = counts ? scale / softmax.sum : 0;
    for (int64_t i = first; i < vocab_size; i += stride) {
      float values[kWidth];
      load(i, values);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        values[j] = share * expf(values[j] - softmax.largest) -
                    (i + j == target ? scale : 0.0f);
      }
      if constexpr (kWidth == kVector) {
        StoreVector(values, of_row + i);
      } else {
        of_row[i] = ToBf16(values[0]);
      }
    }
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_ROW_KERNELS_H_
