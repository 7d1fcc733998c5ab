// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on tensor cores without a matrix of scores in memory
// (FlashAttention-2, Dao 2023): scores exist for one tile of queries and keys
// at a time, in registers. The backward pass recomputes them from log_sum_exp,
// once by keys (for the gradients of keys and values) and once by queries, so
// that each gradient has one writer, and its bits do not depend on the order in
// which blocks run.
//
// Heads have kHeadDim values or fewer, a multiple of 16; tiles are padded with
// zeros. Blocks have kAttentionThreads threads and take a tile of queries (or
// keys). Block (x, y, z) takes tile x from the end (or the beginning), where
// the work is greatest, of query (or key) head y and sequence z.
#ifndef WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_
#define WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "worker/model/cuda/attention_tiles.h"
#include "worker/model/cuda/device_code.h"
#include "worker/model/ops.h"

namespace causeway {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * 32;
inline constexpr float kLn2 = 0.69314718055994530942f;

// The sizes of tiles. A block owns kOwn rows, kTiles * 16 for each of its
// warps, and processes kOther other rows in each step. Shared memory holds two
// tiles of other rows for the current step and two for the next, which are
// being loaded. The sizes are the largest that fit in registers and in the 99
// KiB of shared memory of every GPU whose tensor cores support bf16.
template <int kTilesOfWarp, int kOthers>
struct TileSizes {
  static constexpr int kTiles = kTilesOfWarp;
  static constexpr int kOwn = kAttentionWarps * kTiles * 16;
  static constexpr int kOther = kOthers;
};
// A block owns queries, and loads keys and values step by step.
template <int kHeadDim>
struct ForwardTiles : TileSizes<2, kHeadDim <= 64 ? 64 : 32> {
  static constexpr size_t kSharedBytes =
      kTileStride<kHeadDim> * (ForwardTiles::kOwn + 4 * ForwardTiles::kOther) *
      sizeof(Bf16);
};
// A block owns queries and their gradient, and loads keys and values step by
// step.
template <int kHeadDim>
struct QueryGradientTiles
    : TileSizes<kHeadDim <= 64 ? 2 : 1, kHeadDim <= 64 ? 64 : 32> {
  // The block's own rows are read from shared memory once, or for each product.
  using OwnRows =
      std::conditional_t<kHeadDim <= 64,
                         SharedRows<kHeadDim, QueryGradientTiles::kTiles>,
                         HeldRows<kHeadDim, QueryGradientTiles::kTiles>>;
  static constexpr size_t kSharedBytes =
      kTileStride<kHeadDim> *
      (2 * QueryGradientTiles::kOwn + 4 * QueryGradientTiles::kOther) *
      sizeof(Bf16);
};
// A block owns keys and values, and loads queries, their gradient, log_sum_exp
// and delta step by step.
template <int kHeadDim>
struct KeyGradientTiles : TileSizes<kHeadDim <= 64 ? 2 : 1, 32> {
  static constexpr size_t kSharedBytes =
      kTileStride<kHeadDim> *
          (2 * KeyGradientTiles::kOwn + 4 * KeyGradientTiles::kOther) *
          sizeof(Bf16) +
      4 * KeyGradientTiles::kOther * sizeof(float);
};

// The matrices of one head of one sequence. `head` counts query heads; the keys
// and values belong to its group.
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

  // Their offsets in the fused projection, in the output, and in log_sum_exp.
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

// Returns the beginnings of the documents of this block's sequence, or null.
CAUSEWAY_DEVICE const int32_t* DocumentBegin(const AttentionShape& shape) {
  return shape.document_begin == nullptr
             ? nullptr
             : shape.document_begin + blockIdx.z * shape.length;
}

// The keys and values that a tile of queries loads step by step. Shared memory
// has two tiles of each: one for even steps, one for odd ones.
template <int kHeadDim, typename Tiles>
struct PassingKeys {
  static constexpr int kTile = kTileValues<kHeadDim, Tiles::kOther>;

  CAUSEWAY_DEVICE PassingKeys(const AttentionShape& shape,
                              const HeadMatrices& at, const Bf16* qkv,
                              Bf16* shared)
      : key(QkvSource(shape, qkv, at.key)),
        value(QkvSource(shape, qkv, at.value)),
        tiles(shared),
        first_query(static_cast<int>(gridDim.x - 1 - blockIdx.x) *
                    Tiles::kOwn) {
    const int length = static_cast<int>(shape.length);
    const int end_query =
        first_query + Tiles::kOwn < length ? first_query + Tiles::kOwn : length;
    const int32_t* const begin = DocumentBegin(shape);
    first_step = begin == nullptr ? 0 : begin[first_query] / Tiles::kOther;
    steps = (end_query + Tiles::kOther - 1) / Tiles::kOther - first_step;
  }

  // Returns the position of a step's first key.
  CAUSEWAY_DEVICE int FirstKey(int step) const {
    return (first_step + step) * Tiles::kOther;
  }

  CAUSEWAY_DEVICE Bf16* Keys(int step) const {
    return tiles + step % 2 * 2 * kTile;
  }
  CAUSEWAY_DEVICE Bf16* Values(int step) const { return Keys(step) + kTile; }

  // Starts to copy the step's tiles.
  CAUSEWAY_DEVICE void Load(int step) const {
    LoadTile<kHeadDim, Tiles::kOther, kAttentionThreads>(key, FirstKey(step),
                                                         Keys(step));
    LoadTile<kHeadDim, Tiles::kOther, kAttentionThreads>(value, FirstKey(step),
                                                         Values(step));
    EndCopies();
  }

  TileSource key;
  TileSource value;
  Bf16* tiles;
  // The block's first query.
  int first_query;
  // The first step meets the tile of keys in which the document of the first
  // query begins.
  int first_step;
  int steps;
};

// Calls body(step) for each step when its copies have arrived and the next
// step's are in flight. Calls load(step) for each step except the first, whose
// load the caller has started.
template <typename Load, typename Body>
CAUSEWAY_DEVICE void ForEachStep(int steps, const Load& load,
                                 const Body& body) {
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load(step + 1);
      AwaitCopies<1>();
    } else {
      AwaitCopies<0>();
    }
    __syncthreads();
    body(step);
    // The next step's load overwrites what this step has read.
    __syncthreads();
  }
}

// The softmax over the keys processed so far, for the rows that a lane shares.
template <int kTiles>
struct RunningSoftmax {
  // Turns scores into weights. If a score is larger than all before, scales
  // down the sums so far.
  template <int kKeys, int kHeadDim>
  CAUSEWAY_DEVICE void Add(float scale, float (&scores)[kTiles][kKeys / 8][4],
                           float (&sums)[kTiles][kHeadDim / 8][4]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[tile][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          most = std::fmax(most, std::fmax(scores[tile][n][2 * half],
                                           scores[tile][n][2 * half + 1]));
        }
        most = RowMax(most);
        // This is rare after the first keys.
        if (most > largest[tile][half]) {
          const float correction = Exp2((largest[tile][half] - most) * scale);
          largest[tile][half] = most;
          total[tile][half] *= correction;
#pragma unroll
          for (int n = 0; n < kHeadDim / 8; ++n) {
            sums[tile][n][2 * half] *= correction;
            sums[tile][n][2 * half + 1] *= correction;
          }
        }
        // All keys so far can be hidden: they are in another document.
        const float offset =
            most == -std::numeric_limits<float>::infinity() ? 0 : -most * scale;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float& score = scores[tile][n][i];
            score = Exp2(std::fma(score, scale, offset));
            total[tile][half] += score;
          }
        }
      }
    }
  }

  // The largest unscaled score; -infinity while all keys were hidden.
  float largest[kTiles][2];
  // This lane's share of the sum of weights.
  float total[kTiles][2] = {};
};

// Computes attention. `scale` is the scores' scale times log2(e).
template <int kHeadDim>
__global__ void AttentionKernel(AttentionShape shape, float scale,
                                const Bf16* qkv, Bf16* output,
                                float* log_sum_exp) {
  using Tiles = ForwardTiles<kHeadDim>;
  constexpr int kTiles = Tiles::kTiles;
  constexpr int kKeys = Tiles::kOther;
  Bf16* const queries = reinterpret_cast<Bf16*>(DynamicShared());
  const HeadMatrices at(shape, blockIdx.z, blockIdx.y);
  const PassingKeys<kHeadDim, Tiles> passing(
      shape, at, qkv, queries + kTileValues<kHeadDim, Tiles::kOwn>);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, at.query), passing.first_query, queries);
  passing.Load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * kTiles * 16;
  const int first_query = passing.first_query + warp_row;
  const SharedRows<kHeadDim, kTiles> own(queries +
                                         warp_row * kTileStride<kHeadDim>);
  float sums[kTiles][kHeadDim / 8][4] = {};
  RunningSoftmax<kTiles> softmax;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    softmax.largest[tile][0] = softmax.largest[tile][1] =
        -std::numeric_limits<float>::infinity();
  }
  const int32_t* const begin = DocumentBegin(shape);
  const auto load = [&](int step) { passing.Load(step); };
  ForEachStep(passing.steps, load, [&](int step) {
    // `ahead` is how many positions the keys are ahead of the queries; some
    // warps see none of the last keys.
    const int ahead = passing.FirstKey(step) - first_query;
    if (ahead >= kTiles * 16) return;
    float scores[kTiles][kKeys / 8][4] = {};
    MultiplyTransposed<kHeadDim, kTiles, kKeys>(own, passing.Keys(step),
                                                scores);
    if (ahead + kKeys > 1) HideLaterKeys<true>(ahead, scores);
    if (begin != nullptr) {
      HideOtherDocuments<true>(begin, shape.length, first_query,
                               passing.FirstKey(step), scores);
    }
    softmax.template Add<kKeys, kHeadDim>(scale, scores, sums);
    Multiply<kHeadDim, kTiles, kKeys>(scores, passing.Values(step), sums);
  });

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = RowSum(softmax.total[tile][half]);
      const float share = 1 / sum;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        sums[tile][n][2 * half] *= share;
        sums[tile][n][2 * half + 1] *= share;
      }
      const int query = first_query + RowOf(tile, 2 * half);
      if (LaneIndex() % 4 == 0 && query < shape.length) {
        log_sum_exp[at.statistics + query] =
            (softmax.largest[tile][half] * scale + log2f(sum)) * kLn2;
      }
    }
  }
  StoreSums<kHeadDim, kTiles>(
      sums, first_query, shape.length, shape.query_width(),
      static_cast<int>(shape.head_dim), output + at.output);
}

// delta[sequence][head][position] <- the dot product of output and d_output.
// Each warp computes one.
static __global__ void AttentionDeltaKernel(AttentionShape shape,
                                            const Bf16* output,
                                            const Bf16* d_output,
                                            float* delta) {
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

// The gradient of one score, the unscaled product of query and key: p =
// exp(score - log_sum_exp) and d_score = p (d_p - delta). Exponentials have
// base 2.
struct ScoreGradient {
  float p;
  float d_score;
};
CAUSEWAY_DEVICE ScoreGradient GradientOf(float score, float d_p, float scale,
                                         float log2_sum_exp, float delta) {
  const float p = Exp2(std::fma(score, scale, -log2_sum_exp));
  return {p, p * (d_p - delta)};
}

// Computes the gradients of keys and values: a tile of keys meets the queries
// that see it, of all heads of its group. Products are by key, then query:
//   S^T = K Q^T,  dP^T = V dO^T,  dV += P^T dO,  dK += dS^T Q.
// Rows beyond the sequence's end add nothing: their queries and gradients are
// 0, and their keys are not written.
template <int kHeadDim>
__global__ void AttentionKeyGradientKernel(AttentionShape shape, float scale,
                                           const Bf16* qkv,
                                           const Bf16* d_output,
                                           const float* log_sum_exp,
                                           const float* delta, Bf16* d_qkv) {
  using Tiles = KeyGradientTiles<kHeadDim>;
  constexpr int kTiles = Tiles::kTiles;
  constexpr int kQueries = Tiles::kOther;
  constexpr int kOwn = kTileValues<kHeadDim, Tiles::kOwn>;
  constexpr int kPassing = kTileValues<kHeadDim, kQueries>;
  Bf16* const keys = reinterpret_cast<Bf16*>(DynamicShared());
  Bf16* const values = keys + kOwn;
  Bf16* const passing = values + kOwn;
  float* const statistics = reinterpret_cast<float*>(passing + 4 * kPassing);

  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t first_head = blockIdx.y * group;
  const int block_key = static_cast<int>(blockIdx.x) * Tiles::kOwn;
  // Each head begins with the first query that sees one of the keys.
  const int first_step = block_key / kQueries;
  const int head_steps =
      static_cast<int>((shape.length + kQueries - 1) / kQueries) - first_step;
  const int steps = head_steps * static_cast<int>(group);
  const auto first_query_of = [&](int step) {
    return (first_step + step % head_steps) * kQueries;
  };
  const auto load = [&](int step) {
    const HeadMatrices at(shape, blockIdx.z, first_head + step / head_steps);
    const int first_query = first_query_of(step);
    Bf16* const to = passing + step % 2 * 2 * kPassing;
    LoadTile<kHeadDim, kQueries, kAttentionThreads>(
        QkvSource(shape, qkv, at.query), first_query, to);
    LoadTile<kHeadDim, kQueries, kAttentionThreads>(
        OutputSource(shape, d_output, at.output), first_query, to + kPassing);
    EndCopies();
    float* const to_statistics = statistics + step % 2 * 2 * kQueries;
    for (int i = static_cast<int>(threadIdx.x); i < kQueries;
         i += kAttentionThreads) {
      const bool inside = first_query + i < shape.length;
      const int64_t from = at.statistics + first_query + i;
      to_statistics[i] = inside ? log_sum_exp[from] * kLog2E : 0;
      to_statistics[kQueries + i] = inside ? delta[from] : 0;
    }
  };
  const HeadMatrices own(shape, blockIdx.z, first_head);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, own.key), block_key, keys);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, own.value), block_key, values);
  load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * kTiles * 16;
  const int first_key = block_key + warp_row;
  const SharedRows<kHeadDim, kTiles> own_keys(keys +
                                              warp_row * kTileStride<kHeadDim>);
  const SharedRows<kHeadDim, kTiles> own_values(
      values + warp_row * kTileStride<kHeadDim>);
  const int32_t* const begin = DocumentBegin(shape);
  float d_keys[kTiles][kHeadDim / 8][4] = {};
  float d_values[kTiles][kHeadDim / 8][4] = {};
  ForEachStep(steps, load, [&](int step) {
    const Bf16* const queries = passing + step % 2 * 2 * kPassing;
    const Bf16* const d_outputs = queries + kPassing;
    const float* const of_queries = statistics + step % 2 * 2 * kQueries;
    const int first_query = first_query_of(step);
    const int ahead = first_query - first_key;
    // Some warps' keys are seen neither by the first queries nor by those of
    // later documents.
    if (ahead + kQueries <= 0) return;
    if (begin != nullptr && begin[first_query] >= first_key + kTiles * 16) {
      return;
    }
    float weights[kTiles][kQueries / 8][4] = {};
    float d_scores[kTiles][kQueries / 8][4] = {};
    MultiplyTransposed<kHeadDim, kTiles, kQueries>(own_keys, queries, weights);
    MultiplyTransposed<kHeadDim, kTiles, kQueries>(own_values, d_outputs,
                                                   d_scores);
    if (ahead < kTiles * 16 - 1) HideLaterKeys<false>(ahead, weights);
    if (begin != nullptr) {
      HideOtherDocuments<false>(begin, shape.length, first_key, first_query,
                                weights);
    }
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = ColumnOf(n, i);
        const float log2_sum_exp = of_queries[column];
        const float of_output = of_queries[kQueries + column];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int at = i; at < 4; at += 2) {
            const ScoreGradient gradient =
                GradientOf(weights[tile][n][at], d_scores[tile][n][at], scale,
                           log2_sum_exp, of_output);
            weights[tile][n][at] = gradient.p;
            d_scores[tile][n][at] = gradient.d_score;
          }
        }
      }
    }
    Multiply<kHeadDim, kTiles, kQueries>(weights, d_outputs, d_values);
    Multiply<kHeadDim, kTiles, kQueries>(d_scores, queries, d_keys);
  });
  // The scores were multiplied by this factor.
  Scale<kHeadDim, kTiles>(scale * kLn2, d_keys);
  const int head_dim = static_cast<int>(shape.head_dim);
  StoreSums<kHeadDim, kTiles>(d_keys, first_key, shape.length,
                              shape.qkv_width(), head_dim, d_qkv + own.key);
  StoreSums<kHeadDim, kTiles>(d_values, first_key, shape.length,
                              shape.qkv_width(), head_dim, d_qkv + own.value);
}

// Computes the gradients of queries: a tile of queries meets the keys that it
// sees.
//   S = Q K^T,  dP = dO V^T,  dQ += dS K.
template <int kHeadDim>
__global__ void AttentionQueryGradientKernel(AttentionShape shape, float scale,
                                             const Bf16* qkv,
                                             const Bf16* d_output,
                                             const float* log_sum_exp,
                                             const float* delta, Bf16* d_qkv) {
  using Tiles = QueryGradientTiles<kHeadDim>;
  constexpr int kTiles = Tiles::kTiles;
  constexpr int kKeys = Tiles::kOther;
  constexpr int kOwn = kTileValues<kHeadDim, Tiles::kOwn>;
  Bf16* const queries = reinterpret_cast<Bf16*>(DynamicShared());
  Bf16* const d_outputs = queries + kOwn;
  const HeadMatrices at(shape, blockIdx.z, blockIdx.y);
  const PassingKeys<kHeadDim, Tiles> passing(shape, at, qkv, d_outputs + kOwn);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      QkvSource(shape, qkv, at.query), passing.first_query, queries);
  LoadTile<kHeadDim, Tiles::kOwn, kAttentionThreads>(
      OutputSource(shape, d_output, at.output), passing.first_query, d_outputs);
  EndCopies();
  passing.Load(0);

  const int warp_row = static_cast<int>(WarpIndex()) * kTiles * 16;
  const int first_query = passing.first_query + warp_row;
  float log2_sum_exp[kTiles][2];
  float of_output[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + RowOf(tile, 2 * half);
      const bool inside = query < shape.length;
      const int64_t from = at.statistics + query;
      log2_sum_exp[tile][half] = inside ? log_sum_exp[from] * kLog2E : 0;
      of_output[tile][half] = inside ? delta[from] : 0;
    }
  }
  AwaitCopies<1>();
  __syncthreads();
  const typename Tiles::OwnRows own_queries(queries +
                                            warp_row * kTileStride<kHeadDim>);
  const typename Tiles::OwnRows own_d_outputs(d_outputs +
                                              warp_row * kTileStride<kHeadDim>);
  float d_queries[kTiles][kHeadDim / 8][4] = {};
  const int32_t* const begin = DocumentBegin(shape);
  const auto load = [&](int step) { passing.Load(step); };
  ForEachStep(passing.steps, load, [&](int step) {
    const Bf16* const keys = passing.Keys(step);
    const int ahead = passing.FirstKey(step) - first_query;
    if (ahead >= kTiles * 16) return;
    float scores[kTiles][kKeys / 8][4] = {};
    float d_scores[kTiles][kKeys / 8][4] = {};
    MultiplyTransposed<kHeadDim, kTiles, kKeys>(own_queries, keys, scores);
    MultiplyTransposed<kHeadDim, kTiles, kKeys>(own_d_outputs,
                                                passing.Values(step), d_scores);
    if (ahead + kKeys > 1) HideLaterKeys<true>(ahead, scores);
    if (begin != nullptr) {
      HideOtherDocuments<true>(begin, shape.length, first_query,
                               passing.FirstKey(step), scores);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          d_scores[tile][n][i] =
              GradientOf(scores[tile][n][i], d_scores[tile][n][i], scale,
                         log2_sum_exp[tile][i / 2], of_output[tile][i / 2])
                  .d_score;
        }
      }
    }
    Multiply<kHeadDim, kTiles, kKeys>(d_scores, keys, d_queries);
  });
  Scale<kHeadDim, kTiles>(scale * kLn2, d_queries);
  StoreSums<kHeadDim, kTiles>(
      d_queries, first_query, shape.length, shape.qkv_width(),
      static_cast<int>(shape.head_dim), d_qkv + at.query);
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_ATTENTION_KERNELS_H_
