// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Single-threaded multiplication of bf16 matrices on the host, by oneDNN, for
// processors with matrix units (AMX). There it is about five times as fast as
// Gemm (gemm.h).
#ifndef WORKER_MODEL_BF16_GEMM_H_
#define WORKER_MODEL_BF16_GEMM_H_

#include <cstdint>

#include "worker/model/gemm.h"

namespace causeway {

// The upper half of a binary32.
using Bf16Bits = uint16_t;

// Returns whether this machine has matrix units for bf16. Without them Bf16Gemm
// should not be called, as it may be slow or fail.
bool HasBf16Gemm();

// c[m, n] <- a op(b), row-major, where a is [m, k] and op(b) is [k, n]; lda,
// ldb, ldc are the distances between stored rows. Sums are fp32; c is fp32 or
// rounded to bf16. Several threads may call this at once; each call runs on its
// caller's thread only. The result depends on the arguments alone.
void Bf16Gemm(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const Bf16Bits* a, int64_t lda, const Bf16Bits* b, int64_t ldb,
              float* c, int64_t ldc);
void Bf16Gemm(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const Bf16Bits* a, int64_t lda, const Bf16Bits* b, int64_t ldb,
              Bf16Bits* c, int64_t ldc);

}  // namespace causeway

#endif  // WORKER_MODEL_BF16_GEMM_H_
