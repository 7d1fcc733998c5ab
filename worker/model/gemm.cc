// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include "glog/logging.h"

namespace causeway {
namespace {

// Sets one OpenMP thread. oneDNN divides each call among OpenMP's threads, but
// our callers have divided the work already, so a second team would only
// compete for the cores. The setting belongs to the calling thread, and the
// destructor restores it.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp() : threads_(omp_get_max_threads()) {
    if (threads_ != 1) omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() {
    if (threads_ != 1) omp_set_num_threads(threads_);
  }
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;
  SingleThreadedOpenMp& operator=(const SingleThreadedOpenMp&) = delete;

 private:
  const int threads_;
};

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
