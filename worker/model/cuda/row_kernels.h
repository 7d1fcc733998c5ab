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

// Kernels over rows of the model's width take kRows rows at a time, so that
// many loads are on their way. A thread has kParts vectors of each row, which
// stay in its registers. Returns the place of such a part in its row, or -1 if
// it has none.
CAUSEWAY_DEVICE int64_t ColumnOfPart(int part, int64_t width) {
  const int64_t column = (threadIdx.x + int64_t{part} * blockDim.x) * kVector;
  return column < width ? column : -1;
}

template <bool kAdd, int kRows, int kParts>
__global__ void RmsNormKernel(const Bf16* x, const Bf16* delta,
                              const float* gain, int64_t rows, int64_t width,
                              float epsilon, Bf16* sum, float* inverse_rms,
                              Bf16* normalized) {
  const int64_t first = int64_t{blockIdx.x} * kRows;
  Bf16Vector own[kRows][kParts] = {};
  Bf16Vector added[kRows][kParts] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int64_t column = ColumnOfPart(part, width);
      if (first + r >= rows || column < 0) continue;
      const int64_t at = (first + r) * width + column;
      own[r][part] = LoadVector(x + at);
      if constexpr (kAdd) added[r][part] = LoadVector(delta + at);
    }
  }
  float squares[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float values[kVector];
      Widen(own[r][part], values);
      if constexpr (kAdd) {
        float deltas[kVector];
        Widen(added[r][part], deltas);
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[j] += deltas[j];
        // The norm is of the stored values, which the backward pass sees.
        own[r][part] = Round(values);
        Widen(own[r][part], values);
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares[r] += values[j] * values[j];
    }
  }
  BlockSums(squares);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first + r;
    if (row >= rows) continue;
    const float scale =
        1 / std::sqrt(squares[r] / static_cast<float>(width) + epsilon);
    if (threadIdx.x == 0) inverse_rms[row] = scale;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int64_t column = ColumnOfPart(part, width);
      if (column < 0) continue;
      const int64_t at = row * width + column;
      float values[kVector];
      float gains[kVector];
      Widen(own[r][part], values);
      LoadVector(gain + column, gains);
      if constexpr (kAdd) StoreVector(own[r][part], sum + at);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        values[j] = values[j] * scale * gains[j];
      }
      StoreVector(values, normalized + at);
    }
  }
}

// The distances between rows: of d_normalized and d_x, of x and normalized, and
// of inverse_rms.
struct RowStrides {
  int64_t d = 0;
  int64_t x = 0;
  int64_t inverse_rms = 1;
};

// Blocks advance by the grid's stride. partial_gains is [blocks][width]: sums
// over the rows of each block. d_x may be d_normalized, and normalized may be
// null.
template <int kRows, int kParts>
__global__ void RmsNormBackwardKernel(const Bf16* d_normalized, const Bf16* x,
                                      const float* inverse_rms,
                                      const float* gain, int64_t rows,
                                      int64_t width, RowStrides strides,
                                      bool accumulate, Bf16* d_x,
                                      float* partial_gains, Bf16* normalized) {
  const int64_t stride = gridDim.x;
  float d_gain[kParts][kVector] = {};
  for (int64_t first = blockIdx.x; first < rows; first += kRows * stride) {
    Bf16Vector d[kRows][kParts] = {};
    Bf16Vector values[kRows][kParts] = {};
    Bf16Vector before[kRows][kParts] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r * stride;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int64_t column = ColumnOfPart(part, width);
        if (row >= rows || column < 0) continue;
        const int64_t d_at = row * strides.d + column;
        d[r][part] = LoadVector(d_normalized + d_at);
        values[r][part] = LoadVector(x + row * strides.x + column);
        if (accumulate) before[r][part] = LoadVector(d_x + d_at);
      }
    }
    float dots[kRows] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (ColumnOfPart(part, width) < 0) continue;
      float gains[kVector];
      LoadVector(gain + ColumnOfPart(part, width), gains);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float of_d[kVector];
        float of_x[kVector];
        Widen(d[r][part], of_d);
        Widen(values[r][part], of_x);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          dots[r] += gains[j] * of_d[j] * of_x[j];
        }
      }
    }
    BlockSums(dots);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r * stride;
      if (row >= rows) continue;
      const float s = inverse_rms[row * strides.inverse_rms];
      const float mean = dots[r] / static_cast<float>(width);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int64_t column = ColumnOfPart(part, width);
        if (column < 0) continue;
        float of_d[kVector];
        float of_x[kVector];
        float gains[kVector];
        float gradient[kVector];
        Widen(d[r][part], of_d);
        Widen(values[r][part], of_x);
        LoadVector(gain + column, gains);
        Widen(before[r][part], gradient);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          d_gain[part][j] += of_d[j] * of_x[j] * s;
          gradient[j] += s * (gains[j] * of_d[j] - of_x[j] * s * s * mean);
          of_x[j] = of_x[j] * s * gains[j];
        }
        StoreVector(gradient, d_x + row * strides.d + column);
        if (normalized != nullptr) {
          StoreVector(of_x, normalized + row * strides.x + column);
        }
      }
    }
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (ColumnOfPart(part, width) < 0) continue;
    StoreVector(d_gain[part],
                partial_gains + blockIdx.x * width + ColumnOfPart(part, width));
  }
}

// sums[column] += the sum of the column over `rows` rows of fp32. Blocks have
// 256 threads: 8 groups of rows for 32 columns.
inline constexpr uint32_t kColumnSumThreads = 256;
static __global__ void ColumnSumKernel(const float* values, int64_t rows,
                                       int64_t width, float* sums) {
  constexpr uint32_t kGroups = kColumnSumThreads / kWarpSize;
  __shared__ float group_sums[kGroups][kWarpSize];
  const int64_t column = int64_t{blockIdx.x} * kWarpSize + LaneIndex();
  float sum = 0;
  if (column < width) {
    // Many loads are on their way at a time.
#pragma unroll 8
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
    sums[column] += sum;
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
// compares tokens in shared memory. A block has kSortRows rows, and for each of
// them a thread in each of kSortParts parts, which count in different tiles.
inline constexpr uint32_t kSortRows = 256;
inline constexpr uint32_t kSortParts = 4;
inline constexpr uint32_t kSortThreads = kSortRows * kSortParts;
static __global__ void __launch_bounds__(kSortThreads)
    SortTokensKernel(const int32_t* tokens, int64_t rows,
                     int32_t* sorted_tokens, int32_t* sorted_rows) {
  constexpr int32_t kNoToken = 0x7fffffff;
  __shared__ __align__(16) int32_t tiles[kSortParts][kSortRows];
  const uint32_t part = threadIdx.x / kSortRows;
  const uint32_t own = threadIdx.x % kSortRows;
  const int32_t(&tile)[kSortRows] = tiles[part];
  const int64_t own_tile = int64_t{blockIdx.x} * kSortRows;
  const int64_t row = own_tile + own;
  const int32_t token = row < rows ? tokens[row] : 0;
  int32_t place = 0;
  for (int64_t begin = 0; begin < rows; begin += kSortThreads) {
    __syncthreads();
    const int64_t at = begin + threadIdx.x;
    tiles[part][own] = at < rows ? tokens[at] : kNoToken;
    __syncthreads();
    // Rows of the same token come before if their number is smaller.
    const int64_t first = begin + part * kSortRows;
    if (first == own_tile) {
      for (uint32_t i = 0; i < kSortRows; ++i) {
        place += tile[i] < token + (i < own ? 1 : 0) ? 1 : 0;
      }
    } else {
      const int32_t limit = first < own_tile ? token + 1 : token;
#pragma unroll 16
      for (uint32_t i = 0; i < kSortRows; ++i) {
        place += tile[i] < limit ? 1 : 0;
      }
    }
  }
  __syncthreads();
  tiles[part][own] = place;
  __syncthreads();
  if (part > 0 || row >= rows) return;
  for (uint32_t other = 1; other < kSortParts; ++other) {
    place += tiles[other][own];
  }
  sorted_tokens[place] = token;
  sorted_rows[place] = static_cast<int32_t>(row);
}

// d_table[token] += the sum of its rows. There is a block of 256 threads for
// each place among the sorted rows and each 256 columns. A block does nothing
// unless the place is its token's first.
inline constexpr uint32_t kEmbeddingThreads = 256;
static __global__ void EmbeddingBackwardKernel(const int32_t* sorted_tokens,
                                               const int32_t* sorted_rows,
                                               const Bf16* d_output,
                                               int64_t rows, int64_t width,
                                               float* d_table) {
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
  d_table[token * width + begin + threadIdx.x] += sum;
}

// A running softmax: the largest value, and the sum of exp(value - largest).
struct SoftmaxSum {
  float largest = -HUGE_VALF;
  float sum = 0;

  // A NaN never becomes the largest value, but is added to the sum.
  template <int kWidth>
  CAUSEWAY_DEVICE void Add(const float (&values)[kWidth]) {
    float top = largest;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) top = values[j] > top ? values[j] : top;
    sum *= Exp(largest - top);
    largest = top;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += Exp(values[j] - largest);
  }
};

// Returns to every lane the sum over its warp. The SoftmaxSum of no values is
// neutral.
CAUSEWAY_DEVICE SoftmaxSum WarpSoftmaxSum(SoftmaxSum value) {
  SoftmaxSum total;
  total.largest = value.largest;
#pragma unroll
  for (uint32_t lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const float other = ShuffleXor(total.largest, lanes);
    total.largest = other > total.largest ? other : total.largest;
  }
  total.sum = WarpSum(
      value.sum == 0 ? 0 : value.sum * Exp(value.largest - total.largest));
  return total;
}

CAUSEWAY_DEVICE SoftmaxSum BlockSoftmaxSum(SoftmaxSum value) {
  __shared__ SoftmaxSum warps[kWarpSize];
  value = WarpSoftmaxSum(value);
  __syncthreads();
  if (LaneIndex() == 0) warps[WarpIndex()] = value;
  __syncthreads();
  return WarpSoftmaxSum(
      LaneIndex() < blockDim.x / kWarpSize ? warps[LaneIndex()] : SoftmaxSum());
}

// Each block takes one row, kWidth values at a time: kVector where rows are
// aligned to 16 bytes, otherwise 1. Without kGradient the logits are unchanged.
// A block reads its row twice, the second time from the L2 cache: blocks are
// large, so that few rows are in work at a time. Every device can run two
// blocks of this size.
inline constexpr uint32_t kCrossEntropyThreads = 768;
template <bool kGradient, int kWidth>
__global__ void __launch_bounds__(kCrossEntropyThreads, 2)
    CrossEntropyKernel(const int32_t* targets, int64_t vocab_size, float scale,
                       Bf16* logits, float* losses) {
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
    softmax.Add(values);
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
        values[j] = share * Exp(values[j] - softmax.largest) -
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
