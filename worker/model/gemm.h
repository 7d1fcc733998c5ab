// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Single-threaded fp32 matrix multiplication on the host, by oneDNN, which only
// gemm.cc and bf16_gemm.cc use. (On 2 AVX-512 machines oneDNN 2.6 gave 195-230
// GFLOP/s on one core at the shapes of a 10M-parameter model; OpenBLAS 0.3.21
// gave 105-115 as installed, since it does not know the CPU, and 160-220 only
// when an environment variable named a kernel for it.)
#ifndef WORKER_MODEL_GEMM_H_
#define WORKER_MODEL_GEMM_H_

#include <cstdint>

namespace causeway {

enum class Transpose { kNo, kYes };

// c[m, n] <- alpha op(a) op(b) + beta c, row-major, where op(a) is [m, k] and
// op(b) is [k, n]; lda, ldb, ldc are the distances between stored rows. beta is
// 0 (c is only written) or 1. Several threads may call this at once; each call
// runs on its caller's thread only. The result depends on the arguments alone.
void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n,
          int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace causeway

#endif  // WORKER_MODEL_GEMM_H_
