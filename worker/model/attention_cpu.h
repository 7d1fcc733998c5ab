// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention of one sequence on the calling thread, in blocks of queries:
// the scores of a block stay in the cache, nothing of size length^2 is ever
// stored, and blocks above the diagonal are skipped. The backward pass
// recomputes the scores from log_sum_exp (Dao et al. 2022).
//
// Arguments are as for Ops::Attention and Ops::AttentionBackward (ops.h);
// pointers are to the whole batch.
#ifndef WORKER_MODEL_ATTENTION_CPU_H_
#define WORKER_MODEL_ATTENTION_CPU_H_

#include <cstdint>

#include "worker/model/ops.h"

namespace causeway {

// Returns the number of values of scratch memory that each of the functions
// below needs.
int64_t AttentionScratchSize(const AttentionShape& shape);

// Computes one query head of one sequence.
void AttendHead(const AttentionShape& shape, int64_t sequence, int64_t head,
                const float* qkv, float* output, float* log_sum_exp,
                float* scratch);

// Computes the backward pass of one key and value head of one sequence and of
// all query heads that read it. Writes their parts of d_qkv.
void AttendGroupBackward(const AttentionShape& shape, int64_t sequence,
                         int64_t kv_head, const float* qkv, const float* output,
                         const float* log_sum_exp, const float* d_output,
                         float* d_qkv, float* scratch);

}  // namespace causeway

#endif  // WORKER_MODEL_ATTENTION_CPU_H_
