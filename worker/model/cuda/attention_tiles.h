// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The building blocks of attention kernels: tiles of bf16 in shared memory and
// the two matrix products over them, in the fragments of the tensor cores
// (device_code.h). With g = lane / 4 and t = lane % 4, a lane has these values
// of each 16 x 8 tile of fp32 sums:
//   [0], [1]: row g, columns 2t and 2t + 1     [2], [3]: row g + 8
#ifndef WORKER_MODEL_CUDA_ATTENTION_TILES_H_
#define WORKER_MODEL_CUDA_ATTENTION_TILES_H_

#include <cstdint>
#include <limits>

#include "worker/model/cuda/device_code.h"

namespace causeway {

// The distance between the starts of a tile's rows, in values. The 16 bytes
// between rows spread the rows that ldmatrix reads over all banks.
template <int kHeadDim>
inline constexpr int kTileStride = kHeadDim + 8;
template <int kHeadDim, int kRows>
inline constexpr int kTileValues = kTileStride<kHeadDim>* kRows;

// A part of a matrix in global memory: `rows` rows of `columns` values,
// `stride` values apart. `columns` is a multiple of kVector and at most the
// tile's.
struct TileSource {
  const Bf16* values;
  int64_t rows;
  int64_t stride;
  int columns;
};

// Starts to copy rows [first, first + kRows) to a tile; rows and columns that
// the source does not have become zero. All of a block's threads must call it.
template <int kHeadDim, int kRows, int kThreads>
CAUSEWAY_DEVICE void LoadTile(const TileSource& source, int64_t first,
                              Bf16* tile) {
  constexpr int kRowVectors = kHeadDim / kVector;
  static_assert(kRows * kRowVectors % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kRowVectors / kThreads; ++i) {
    const int vector = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = vector / kRowVectors;
    const int column = vector % kRowVectors * kVector;
    const bool outside = first + row >= source.rows || column >= source.columns;
    const Bf16* const from =
        outside ? source.values
                : source.values + (first + row) * source.stride + column;
    CopyAsync(from, outside, tile + row * kTileStride<kHeadDim> + column);
  }
}

// 16 * kTiles rows of a tile as the left matrix of a product. They are in
// shared memory, and each use reads them from there.
template <int kHeadDim, int kTiles>
class SharedRows {
 public:
  // `first` points to this warp's first row.
  explicit CAUSEWAY_DEVICE SharedRows(const Bf16* first)
      : row_(first +
             static_cast<int>(LaneIndex() % 16) * kTileStride<kHeadDim> +
             static_cast<int>(LaneIndex() / 16) * 8) {}

  // Reads columns [16 k, 16 k + 16) of rows [16 tile, 16 tile + 16).
  CAUSEWAY_DEVICE void Get(int tile, int k, uint32_t (&values)[4]) const {
    LoadMatrices<false>(row_ + tile * 16 * kTileStride<kHeadDim> + k * 16,
                        values);
  }

 private:
  const Bf16* row_;
};
// The same rows in registers, for loops with enough registers. In a narrow
// product the left matrix is half of the reads from shared memory.
template <int kHeadDim, int kTiles>
class HeldRows {
 public:
  explicit CAUSEWAY_DEVICE HeldRows(const Bf16* first) {
    const SharedRows<kHeadDim, kTiles> shared(first);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        shared.Get(tile, k, values_[tile][k]);
      }
    }
  }

  CAUSEWAY_DEVICE void Get(int tile, int k, uint32_t (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = values_[tile][k][i];
  }

 private:
  uint32_t values_[kTiles][kHeadDim / 16][4];
};

// sums += A B^T, for 16 * kTiles rows of A and the kRows rows of B, a tile in
// shared memory.
template <int kHeadDim, int kTiles, int kRows, typename Rows>
CAUSEWAY_DEVICE void MultiplyTransposed(const Rows& a, const Bf16* b,
                                        float (&sums)[kTiles][kRows / 8][4]) {
  constexpr int kStride = kTileStride<kHeadDim>;
  const int lane = static_cast<int>(LaneIndex());
  const Bf16* const b_row =
      b + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a_values[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) a.Get(tile, k, a_values[tile]);
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) {
      uint32_t b_values[4];
      LoadMatrices<false>(b_row + n * 16 * kStride + k * 16, b_values);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd(a_values[tile], b_values[0], b_values[1],
                    sums[tile][2 * n]);
        MultiplyAdd(a_values[tile], b_values[2], b_values[3],
                    sums[tile][2 * n + 1]);
      }
    }
  }
}

// sums += A B, for A in the fragments of MultiplyTransposed's result, rounded
// to bf16, and the kRows rows of B, a tile in shared memory.
template <int kHeadDim, int kTiles, int kRows>
CAUSEWAY_DEVICE void Multiply(const float (&a)[kTiles][kRows / 8][4],
                              const Bf16* b,
                              float (&sums)[kTiles][kHeadDim / 8][4]) {
  constexpr int kStride = kTileStride<kHeadDim>;
  const int lane = static_cast<int>(LaneIndex());
  const Bf16* const b_row =
      b + (lane % 8 + lane / 8 % 2 * 8) * kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    uint32_t a_values[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = a[tile][2 * k + i / 2] + i % 2 * 2;
        a_values[tile][i] = PackBf16(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b_values[4];
      LoadMatrices<true>(b_row + k * 16 * kStride + n * 16, b_values);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd(a_values[tile], b_values[0], b_values[1],
                    sums[tile][2 * n]);
        MultiplyAdd(a_values[tile], b_values[2], b_values[3],
                    sums[tile][2 * n + 1]);
      }
    }
  }
}

// Return to each of the four lanes that share a row of a fragment its sum or
// its largest value.
CAUSEWAY_DEVICE float RowSum(float value) {
  value += ShuffleXor(value, 1);
  return value + ShuffleXor(value, 2);
}
CAUSEWAY_DEVICE float RowMax(float value) {
  value = std::fmax(value, ShuffleXor(value, 1));
  return std::fmax(value, ShuffleXor(value, 2));
}

// Return the row and the column, within its warp's rows, of a lane's sum
// [tile][n][i].
CAUSEWAY_DEVICE int RowOf(int tile, int i) {
  return tile * 16 + static_cast<int>(LaneIndex()) / 4 + i / 2 * 8;
}
CAUSEWAY_DEVICE int ColumnOf(int n, int i) {
  return n * 8 + static_cast<int>(LaneIndex()) % 4 * 2 + i % 2;
}

// Sets the scores for which hides(row, column) is true to -infinity.
template <typename Predicate, int kTiles, int kColumns>
CAUSEWAY_DEVICE void HideScores(const Predicate& hides,
                                float (&scores)[kTiles][kColumns][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (hides(RowOf(tile, i), ColumnOf(n, i))) {
          scores[tile][n][i] = -std::numeric_limits<float>::infinity();
        }
      }
    }
  }
}

// Sets the scores of keys that come after their query to -infinity. Rows are
// queries and columns keys, or the other way round. `ahead` is how many
// positions the first column is ahead of the first row.
template <bool kRowsAreQueries, int kTiles, int kColumns>
CAUSEWAY_DEVICE void HideLaterKeys(int ahead,
                                   float (&scores)[kTiles][kColumns][4]) {
  HideScores(
      [&](int row, int column) {
        const int distance = ahead + column - row;
        return kRowsAreQueries ? distance > 0 : distance < 0;
      },
      scores);
}

// Sets the scores of keys before their query's document to -infinity.
// `first_row` and `first_column` are positions in the sequence.
template <bool kRowsAreQueries, int kTiles, int kColumns>
CAUSEWAY_DEVICE void HideOtherDocuments(const int32_t* document_begin,
                                        int64_t length, int first_row,
                                        int first_column,
                                        float (&scores)[kTiles][kColumns][4]) {
  HideScores(
      [&](int row, int column) {
        const int query =
            kRowsAreQueries ? first_row + row : first_column + column;
        const int key =
            kRowsAreQueries ? first_column + column : first_row + row;
        return query < length && key < document_begin[query];
      },
      scores);
}

template <int kHeadDim, int kTiles>
CAUSEWAY_DEVICE void Scale(float factor,
                           float (&sums)[kTiles][kHeadDim / 8][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][n][i] *= factor;
    }
  }
}

// Writes sums to rows [first, first + 16 * kTiles) of a matrix, as far as these
// are below `rows`.
template <int kHeadDim, int kTiles>
CAUSEWAY_DEVICE void StoreSums(const float (&sums)[kTiles][kHeadDim / 8][4],
                               int64_t first, int64_t rows, int64_t stride,
                               int columns, Bf16* to) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int64_t row = first + RowOf(tile, i);
      if (row >= rows) continue;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        const int column = ColumnOf(n, i);
        if (column >= columns) continue;
        *reinterpret_cast<uint32_t*>(to + row * stride + column) =
            PackBf16(sums[tile][n][i], sums[tile][n][i + 1]);
      }
    }
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_ATTENTION_TILES_H_
