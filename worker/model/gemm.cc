// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gemm.h"

#include <dnnl.h>

#include "glog/logging.h"
#include "worker/model/single_threaded_openmp.h"

namespace causeway {
namespace {

char Letter(Transpose transpose) {
  return transpose == Transpose::kYes ? 'T' : 'N';
}

}  // namespace

void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n,
          int64_t k, float alpha, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  const SingleThreadedOpenMp single_threaded;
  const dnnl_status_t status =
      dnnl_sgemm(Letter(transpose_a), Letter(transpose_b), m, n, k, alpha, a,
                 lda, b, ldb, beta, c, ldc);
  CHECK_EQ(status, dnnl_success)
      << "dnnl_sgemm " << Letter(transpose_a) << Letter(transpose_b) << " " << m
      << " x " << n << " x " << k << ", strides " << lda << " " << ldb << " "
      << ldc;
}

}  // namespace causeway
