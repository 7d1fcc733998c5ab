// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/attention_cpu.h"

#include <algorithm>
#include <cmath>

#include "worker/model/gemm.h"
#include "worker/model/kernels_cpu.h"

namespace causeway {
namespace {

// The number of queries in a block: enough for the matrix product to run at
// full speed, few enough to waste little above the diagonal.
constexpr int64_t kBlock = 64;

float ScoreScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_dim));
}

// The positions [begin, end) of a sequence, which see only one another.
struct Document {
  int64_t begin;
  int64_t end;
};

// Calls visit(document) for each document of a sequence, in order.
template <typename Visitor>
void ForEachDocument(const AttentionShape& shape, int64_t sequence,
                     const Visitor& visit) {
  if (shape.document_begin == nullptr) return visit(Document{0, shape.length});
  const int32_t* const from = shape.document_begin + sequence * shape.length;
  for (int64_t begin = 0; begin < shape.length;) {
    const int32_t* const end =
        std::upper_bound(from + begin, from + shape.length, from[begin]);
    visit(Document{begin, end - from});
    begin = end - from;
  }
}

// The offsets, in an array with the layout of qkv, of one document's query head
// and of the key and value heads it reads.
struct HeadOffsets {
  HeadOffsets(const AttentionShape& shape, int64_t sequence,
              const Document& document, int64_t head) {
    const int64_t row = sequence * shape.length + document.begin;
    const int64_t kv_head = head / (shape.heads / shape.kv_heads);
    query = row * shape.qkv_width() + head * shape.head_dim;
    key = row * shape.qkv_width() + shape.query_width() +
          kv_head * shape.head_dim;
    value = key + shape.kv_width();
    output = row * shape.query_width() + head * shape.head_dim;
    log_sum_exp =
        (sequence * shape.heads + head) * shape.length + document.begin;
  }

  int64_t query;
  int64_t key;
  int64_t value;
  int64_t output;
  int64_t log_sum_exp;
};

// Computes queries [first, first + rows) of one head.
void AttendBlock(const AttentionShape& shape, const HeadOffsets& at,
                 int64_t first, int64_t rows, const float* qkv, float* output,
                 float* log_sum_exp, float* scratch) {
  const int64_t dim = shape.head_dim;
  const int64_t stride = shape.qkv_width();
  const int64_t out_stride = shape.query_width();
  const int64_t keys = first + rows;
  float* inverse_sum = scratch;
  float* scores = scratch + kBlock;
  float* out = output + at.output + first * out_stride;

  const ModelKernels& kernels = CpuModelKernels();
  Gemm(Transpose::kNo, Transpose::kYes, rows, keys, dim, ScoreScale(shape),
       qkv + at.query + first * stride, stride, qkv + at.key, stride, 0, scores,
       keys);
  kernels.causal_exp_rows(rows, first, keys, scores, inverse_sum,
                          log_sum_exp + at.log_sum_exp + first);
  Gemm(Transpose::kNo, Transpose::kNo, rows, dim, keys, 1, scores, keys,
       qkv + at.value, stride, 0, out, out_stride);
  // Normalizing the output touches fewer values than normalizing the scores.
  for (int64_t r = 0; r < rows; ++r) {
    kernels.scale(inverse_sum[r], dim, out + r * out_stride);
  }
}

// Computes the backward pass of queries [first, first + rows) of one head.
// `accumulate` says whether keys [0, first + rows) already have a gradient.
void AttendBlockBackward(const AttentionShape& shape, const HeadOffsets& at,
                         int64_t first, int64_t rows, bool accumulate,
                         const float* qkv, const float* output,
                         const float* log_sum_exp, const float* d_output,
                         float* d_qkv, float* scratch) {
  const int64_t dim = shape.head_dim;
  const int64_t stride = shape.qkv_width();
  const int64_t out_stride = shape.query_width();
  const int64_t keys = first + rows;
  const float beta = accumulate ? 1.0f : 0.0f;
  const float* query = qkv + at.query + first * stride;
  const float* key = qkv + at.key;
  const float* out = output + at.output + first * out_stride;
  const float* d_out = d_output + at.output + first * out_stride;
  float* mean = scratch;
  float* scores = scratch + kBlock;
  float* d_scores = scores + rows * keys;

  const ModelKernels& kernels = CpuModelKernels();
  for (int64_t r = 0; r < rows; ++r) {
    mean[r] = kernels.dot(d_out + r * out_stride, out + r * out_stride, dim);
  }
  Gemm(Transpose::kNo, Transpose::kYes, rows, keys, dim, ScoreScale(shape),
       query, stride, key, stride, 0, scores, keys);
  Gemm(Transpose::kNo, Transpose::kYes, rows, keys, dim, 1, d_out, out_stride,
       qkv + at.value, stride, 0, d_scores, keys);
  kernels.causal_exp_backward_rows(rows, first, keys,
                                   log_sum_exp + at.log_sum_exp + first, mean,
                                   ScoreScale(shape), scores, d_scores);
  Gemm(Transpose::kYes, Transpose::kNo, keys, dim, rows, 1, scores, keys, d_out,
       out_stride, beta, d_qkv + at.value, stride);
  Gemm(Transpose::kYes, Transpose::kNo, keys, dim, rows, 1, d_scores, keys,
       query, stride, beta, d_qkv + at.key, stride);
  Gemm(Transpose::kNo, Transpose::kNo, rows, dim, keys, 1, d_scores, keys, key,
       stride, 0, d_qkv + at.query + first * stride, stride);
}

}  // namespace

int64_t AttentionScratchSize(const AttentionShape& shape) {
  return kBlock + 2 * kBlock * shape.length;
}

void AttendHead(const AttentionShape& shape, int64_t sequence, int64_t head,
                const float* qkv, float* output, float* log_sum_exp,
                float* scratch) {
  ForEachDocument(shape, sequence, [&](const Document& document) {
    const HeadOffsets at(shape, sequence, document, head);
    for (int64_t first = std::max<int64_t>(shape.first - document.begin, 0);
         first < document.end - document.begin; first += kBlock) {
      AttendBlock(shape, at, first,
                  std::min(kBlock, document.end - document.begin - first), qkv,
                  output, log_sum_exp, scratch);
    }
  });
}

void AttendGroupBackward(const AttentionShape& shape, int64_t sequence,
                         int64_t kv_head, const float* qkv, const float* output,
                         const float* log_sum_exp, const float* d_output,
                         float* d_qkv, float* scratch) {
  const int64_t group = shape.heads / shape.kv_heads;
  ForEachDocument(shape, sequence, [&](const Document& document) {
    const int64_t length = document.end - document.begin;
    for (int64_t i = 0; i < group; ++i) {
      const HeadOffsets at(shape, sequence, document, kv_head * group + i);
      // The last block comes first: it reads all keys, so it writes all their
      // gradients and none need zeroing.
      const int64_t last = (length - 1) / kBlock * kBlock;
      for (int64_t first = last; first >= 0; first -= kBlock) {
        AttendBlockBackward(shape, at, first, std::min(kBlock, length - first),
                            i > 0 || first < last, qkv, output, log_sum_exp,
                            d_output, d_qkv, scratch);
      }
    }
  });
}

}  // namespace causeway
