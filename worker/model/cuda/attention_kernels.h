// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on tensor cores without a matrix of scores in memory
// (FlashAttention-2, Dao 2023): scores exist for one tile of queries and keys
// at a time, in registers. The backward pass makes them again from log_sum_exp,
// once by keys (their gradients and the values') and once by queries, so that
// each gradient has one writer, and its bits do not depend on who comes first.
//
// Heads have kHeadDim values or fewer, a multiple of 16: tiles are filled up
// with zeros. Blocks have kAttentionThreads threads and take a tile of queries
// (or keys); block (x, y, z) is tile x from the end (or the beginning), which
// has the most to do, of query (or key) head y and sequence z.
#ifndef WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_
#define WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_

#include <cstdint>
#include <limits>

#include "worker/model/cuda/attention_tiles.h"
#include "worker/model/cuda/device_code.h"
#include "worker/model/ops.h"

namespace causeway {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * 32;
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// Sizes of tiles. A warp has kTiles * 16 rows of queries, and as many rows of
// sums as fit in registers.
template <int kHeadDim>
struct ForwardTiles {
  static constexpr int kTiles = 2;
  static constexpr int kQueries = kAttentionWarps * kTiles * 16;
  static constexpr int kKeys = kHeadDim <= 64 ? 64 : 32;
  // Queries, and keys and values twice: the next are on their way.
  static constexpr size_t kSharedBytes =
      kTileStride<kHeadDim> * (kQueries + 4 * kKeys) * sizeof(Bf16);
};
template <int kHeadDim>
struct BackwardTiles {
  // Of what the block has, and of what passes by.
  static constexpr int kOwn = kAttentionWarps * 16;
  static constexpr int kOther = kHeadDim <= 64 ? 64 : 32;
  // Two of each, of the others twice; then log_sum_exp and delta of the others.
  static constexpr size_t kSharedBytes =
      kTileStride<kHeadDim> * (2 * kOwn + 4 * kOther) * sizeof(Bf16) +
      4 * kOther * sizeof(float);
};

// The matrices of one head of one sequence. `head` counts query heads; keys and
// values are those of its group.
struct HeadMatrices {
  CAUSEWAY_DEVICE HeadMatrices(const AttentionShape& shape, int64_t sequence,
                               int64_t head)
      : query(sequence * shape.length * shape.qkv_width() +
              head * shape.head_dim),
        key(sequence * shape.length * shape.qkv_width() + shape.query_width() +
            head / (shape.heads / shape.kv_heads) * shape.head_dim),
        value(key + shape.kv_width()),
        output(sequence * shape.length * shape.query_width() +
               head * shape.head_dim),
        statistics((sequence * shape.heads + head) * shape.length) {}

  // Where each begins in the fused projection, in the output, and in
  // log_sum_exp.
  int64_t query;
  int64_t key;
  int64_t value;
  int64_t output;
  int64_t statistics;
};

CAUSEWAY_DEVICE TileSource QkvSource(const AttentionShape& shape,
                                     const Bf16* qkv, int64_t begin) {
  return {qkv + begin, shape.length, shape.qkv_width(),
          static_cast<int>(shape.head_dim)};
}
CAUSEWAY_DEVICE TileSource OutputSource(const AttentionShape& shape,
                                        const Bf16* output, int64_t begin) {
  return {output + begin, shape.length, shape.query_width(),
          static_cast<int>(shape.head_dim)};
}

// `scale` is that of the scores, times log2(e).
template <int kHeadDim>
CAUSEWAY_KERNEL_TEMPLATE void AttentionKernel(AttentionShape shape, float scale,
                                              const Bf16* qkv, Bf16* output,
                                              float* log_sum_exp) {
  using Tiles = ForwardTiles<kHeadDim>;
  constexpr int kTiles = Tiles::kTiles;
  constexpr int kKeys = Tiles::kKeys;
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  Bf16* const queries = reinterpret_cast<Bf16*>(DynamicShared());
  Bf16* const passing = queries + kTileValues<kHeadDim, Tiles::kQueries>;
  constexpr int kPassing = kTileValues<kHeadDim, kKeys>;

  const HeadMatrices at(shape, BlockIndex().z, BlockIndex().y);
  const int length = static_cast<int>(shape.length);
  const int first_query =
      static_cast<int>(GridBlocks().x - 1 - BlockIndex().x) * Tiles::kQueries;
  const TileSource key = QkvSource(shape, qkv, at.key);
  const TileSource value = QkvSource(shape, qkv, at.value);
  const int end_query = first_query + Tiles::kQueries < length
                            ? first_query + Tiles::kQueries
                            : length;
  const int steps = (end_query + kKeys - 1) / kKeys;
  const auto load = [&](int step) {
    Bf16* const to = passing + step % 2 * 2 * kPassing;
    LoadTile<kHeadDim, kKeys, kAttentionThreads>(key, step * kKeys, to);
    LoadTile<kHeadDim, kKeys, kAttentionThreads>(value, step * kKeys,
                                                 to + kPassing);
    EndCopies();
  };
  LoadTile<kHeadDim, Tiles::kQueries, kAttentionThreads>(
      QkvSource(shape, qkv, at.query), first_query, queries);
  load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * kTiles * 16;
  float sums[kTiles][kHeadDim / 8][4] = {};
  // Of each row: its largest score times log2(e), and the sum of its weights
  // that this lane has.
  float largest[kTiles][2];
  float total[kTiles][2] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    largest[tile][0] = largest[tile][1] = kMasked;
  }
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load(step + 1);
      AwaitCopies<1>();
    } else {
      AwaitCopies<0>();
    }
    SyncBlock();
    const Bf16* const keys = passing + step % 2 * 2 * kPassing;
    float scores[kTiles][kKeys / 8][4] = {};
    MultiplyTransposed<kHeadDim, kTiles, kKeys>(
        queries + warp_row * kTileStride<kHeadDim>, keys, scores);
    const int first_key = step * kKeys;
    const bool masked = first_key + kKeys > first_query + warp_row;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first_query + warp_row + RowOf(tile, 2 * half);
        float most = largest[tile][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float& score = scores[tile][n][i];
            score *= scale;
            if (masked && first_key + ColumnOf(n, i) > query) score = kMasked;
            most = std::fmax(most, score);
          }
        }
        // Finite: the first step has a key for each query.
        most = RowMax(most);
        const float correction = Exp2(largest[tile][half] - most);
        largest[tile][half] = most;
        total[tile][half] *= correction;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float& score = scores[tile][n][i];
            score = Exp2(score - most);
            total[tile][half] += score;
          }
        }
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          sums[tile][n][2 * half] *= correction;
          sums[tile][n][2 * half + 1] *= correction;
        }
      }
    }
    Multiply<kHeadDim, kTiles, kKeys>(scores, keys + kPassing, sums);
    // The next step's loads go where this one has read.
    SyncBlock();
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = RowSum(total[tile][half]);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        sums[tile][n][2 * half] /= sum;
        sums[tile][n][2 * half + 1] /= sum;
      }
      const int query = first_query + warp_row + RowOf(tile, 2 * half);
      if (LaneIndex() % 4 == 0 && query < length) {
        log_sum_exp[at.statistics + query] =
            (largest[tile][half] + Log2(sum)) * kLn2;
      }
    }
  }
  StoreSums<kHeadDim, kTiles>(
      sums, first_query + warp_row, shape.length, shape.query_width(),
      static_cast<int>(shape.head_dim), output + at.output);
}

// delta[sequence][head][position] <- the dot product of output and d_output, a
// warp for each.
CAUSEWAY_KERNEL void AttentionDeltaKernel(AttentionShape shape,
                                          const Bf16* output,
                                          const Bf16* d_output, float* delta) {
  const int64_t index = GlobalThread() / kWarpSize;
  if (index >= shape.rows() * shape.heads) return;
  const int64_t row = index / shape.heads;
  const int64_t head = index - row * shape.heads;
  const int64_t begin = index * shape.head_dim;
  float sum = 0;
  for (int64_t i = int64_t{LaneIndex()} * kVector; i < shape.head_dim;
       i += kWarpSize * kVector) {
    float a[kVector];
    float b[kVector];
    LoadVector(output + begin + i, a);
    LoadVector(d_output + begin + i, b);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += a[j] * b[j];
  }
  sum = WarpSum(sum);
  if (LaneIndex() == 0) {
    const int64_t sequence = row / shape.length;
    delta[(sequence * shape.heads + head) * shape.length + row -
          sequence * shape.length] = sum;
  }
}

// The gradient's weight of one score: with p = exp(score - log_sum_exp),
// d_score = p (d_p - delta). `score` is the bare product of query and key.
struct ScoreGradient {
  float p;
  float d_score;
};
CAUSEWAY_DEVICE ScoreGradient GradientOf(float score, float d_p, float scale,
                                         float log_sum_exp, float delta,
                                         bool visible) {
  const float p = visible ? Exp2(score * scale - log_sum_exp * kLog2E) : 0.0f;
  return {p, p * (d_p - delta)};
}

// Gradients of keys and values: a tile of keys meets the queries of all heads
// of its group that see it. Products are by key, then query:
//   S^T = K Q^T,  dP^T = V dO^T,  dV += P^T dO,  dK += dS^T Q.
template <int kHeadDim>
CAUSEWAY_KERNEL_TEMPLATE void AttentionKeyGradientKernel(
    AttentionShape shape, float scale, const Bf16* qkv, const Bf16* d_output,
    const float* log_sum_exp, const float* delta, Bf16* d_qkv) {
  using Tiles = BackwardTiles<kHeadDim>;
  constexpr int kQueries = Tiles::kOther;
  constexpr int kOwn = kTileValues<kHeadDim, Tiles::kOwn>;
  constexpr int kPassing = kTileValues<kHeadDim, kQueries>;
  Bf16* const keys = reinterpret_cast<Bf16*>(DynamicShared());
  Bf16* const values = keys + kOwn;
  Bf16* const passing = values + kOwn;
  float* const statistics = reinterpret_cast<float*>(passing + 4 * kPassing);

  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t first_head = BlockIndex().y * group;
  const int64_t first_key = int64_t{BlockIndex().x} * Tiles::kOwn;
  // Of each head: from the first query that sees one of the keys.
  const int first_step = static_cast<int>(first_key / kQueries);
  const int head_steps =
      static_cast<int>((shape.length + kQueries - 1) / kQueries) - first_step;
  const int steps = head_steps * static_cast<int>(group);
  const auto load = [&](int step) {
    const HeadMatrices at(shape, BlockIndex().z,
                          first_head + step / head_steps);
    const int64_t first_query =
        int64_t{first_step + step % head_steps} * kQueries;
    Bf16* const to = passing + step % 2 * 2 * kPassing;
    LoadTile<kHeadDim, kQueries, kAttentionThreads>(
        QkvSource(shape, qkv, at.query), first_query, to);
    LoadTile<kHeadDim, kQueries, kAttentionThreads>(
        OutputSource(shape, d_output, at.output), first_query, to + kPassing);
    EndCopies();
    float* const to_statistics = statistics + step % 2 * 2 * kQueries;
    for (int i = static_cast<int>(ThreadIndex()); i < kQueries;
         i += kAttentionThreads) {
      const bool inside = first_query + i < shape.length;
      const int64_t from = at.statistics + first_query + i;
      to_statistics[i] = inside ? log_sum_exp[from] : 0;
      to_statistics[kQueries + i] = inside ? delta[from] : 0;
    }
  };
  const HeadMatrices own(shape, BlockIndex().z, first_head);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, own.key), first_key, keys);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, own.value), first_key, values);
  load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * 16;
  float d_keys[1][kHeadDim / 8][4] = {};
  float d_values[1][kHeadDim / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load(step + 1);
      AwaitCopies<1>();
    } else {
      AwaitCopies<0>();
    }
    SyncBlock();
    const Bf16* const queries = passing + step % 2 * 2 * kPassing;
    const Bf16* const d_outputs = queries + kPassing;
    const float* const of_queries = statistics + step % 2 * 2 * kQueries;
    float weights[1][kQueries / 8][4] = {};
    float d_scores[1][kQueries / 8][4] = {};
    MultiplyTransposed<kHeadDim, 1, kQueries>(
        keys + warp_row * kTileStride<kHeadDim>, queries, weights);
    MultiplyTransposed<kHeadDim, 1, kQueries>(
        values + warp_row * kTileStride<kHeadDim>, d_outputs, d_scores);
    const int64_t first_query =
        int64_t{first_step + step % head_steps} * kQueries;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = ColumnOf(n, i);
        const int64_t query = first_query + column;
        const bool visible =
            first_key + warp_row + RowOf(0, i) <= query && query < shape.length;
        const ScoreGradient gradient = GradientOf(
            weights[0][n][i], d_scores[0][n][i], scale, of_queries[column],
            of_queries[kQueries + column], visible);
        weights[0][n][i] = gradient.p;
        d_scores[0][n][i] = gradient.d_score;
      }
    }
    Multiply<kHeadDim, 1, kQueries>(weights, d_outputs, d_values);
    Multiply<kHeadDim, 1, kQueries>(d_scores, queries, d_keys);
    SyncBlock();
  }
  // What the scores were multiplied by.
  const float score_scale = scale * kLn2;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d_keys[0][n][i] *= score_scale;
  }
  const int head_dim = static_cast<int>(shape.head_dim);
  StoreSums<kHeadDim, 1>(d_keys, first_key + warp_row, shape.length,
                         shape.qkv_width(), head_dim, d_qkv + own.key);
  StoreSums<kHeadDim, 1>(d_values, first_key + warp_row, shape.length,
                         shape.qkv_width(), head_dim, d_qkv + own.value);
}

// Gradients of queries: a tile of queries meets the keys that it sees.
//   S = Q K^T,  dP = dO V^T,  dQ += dS K.
template <int kHeadDim>
CAUSEWAY_KERNEL_TEMPLATE void AttentionQueryGradientKernel(
    AttentionShape shape, float scale, const Bf16* qkv, const Bf16* d_output,
    const float* log_sum_exp, const float* delta, Bf16* d_qkv) {
  using Tiles = BackwardTiles<kHeadDim>;
  constexpr int kKeys = Tiles::kOther;
  constexpr int kOwn = kTileValues<kHeadDim, Tiles::kOwn>;
  constexpr int kPassing = kTileValues<kHeadDim, kKeys>;
  Bf16* const queries = reinterpret_cast<Bf16*>(DynamicShared());
  Bf16* const d_outputs = queries + kOwn;
  Bf16* const passing = d_outputs + kOwn;

  const HeadMatrices at(shape, BlockIndex().z, BlockIndex().y);
  const int64_t first_query =
      int64_t{GridBlocks().x - 1 - BlockIndex().x} * Tiles::kOwn;
  const TileSource key = QkvSource(shape, qkv, at.key);
  const TileSource value = QkvSource(shape, qkv, at.value);
  const int64_t end_query = first_query + Tiles::kOwn < shape.length
                                ? first_query + Tiles::kOwn
                                : shape.length;
  const int steps = static_cast<int>((end_query + kKeys - 1) / kKeys);
  const auto load = [&](int step) {
    Bf16* const to = passing + step % 2 * 2 * kPassing;
    LoadTile<kHeadDim, kKeys, kAttentionThreads>(key, step * kKeys, to);
    LoadTile<kHeadDim, kKeys, kAttentionThreads>(value, step * kKeys,
                                                 to + kPassing);
    EndCopies();
  };
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, at.query), first_query, queries);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      OutputSource(shape, d_output, at.output), first_query, d_outputs);
  load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * 16;
  float row_log_sum_exp[2];
  float row_delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t query = first_query + warp_row + RowOf(0, 2 * half);
    const bool inside = query < shape.length;
    row_log_sum_exp[half] = inside ? log_sum_exp[at.statistics + query] : 0;
    row_delta[half] = inside ? delta[at.statistics + query] : 0;
  }
  float d_queries[1][kHeadDim / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load(step + 1);
      AwaitCopies<1>();
    } else {
      AwaitCopies<0>();
    }
    SyncBlock();
    const Bf16* const keys = passing + step % 2 * 2 * kPassing;
    float scores[1][kKeys / 8][4] = {};
    float d_scores[1][kKeys / 8][4] = {};
    MultiplyTransposed<kHeadDim, 1, kKeys>(
        queries + warp_row * kTileStride<kHeadDim>, keys, scores);
    MultiplyTransposed<kHeadDim, 1, kKeys>(
        d_outputs + warp_row * kTileStride<kHeadDim>, keys + kPassing,
        d_scores);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t query = first_query + warp_row + RowOf(0, i);
        const bool visible = int64_t{step} * kKeys + ColumnOf(n, i) <= query &&
                             query < shape.length;
        d_scores[0][n][i] =
            GradientOf(scores[0][n][i], d_scores[0][n][i], scale,
                       row_log_sum_exp[i / 2], row_delta[i / 2], visible)
                .d_score;
      }
    }
    Multiply<kHeadDim, 1, kKeys>(d_scores, keys, d_queries);
    SyncBlock();
  }
  const float score_scale = scale * kLn2;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d_queries[0][n][i] *= score_scale;
  }
  StoreSums<kHeadDim, 1>(d_queries, first_query + warp_row, shape.length,
                         shape.qkv_width(), static_cast<int>(shape.head_dim),
                         d_qkv + at.query);
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_
