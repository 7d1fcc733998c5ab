// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The vectorized row loops of the CPU backend, compiled for several instruction
// sets and dispatched at run time (Highway). Each runs on the calling thread.
// Arguments and results are as for the operations of the same name in ops.h,
// for `rows` rows from the pointers on; any size is allowed. Pointers need no
// alignment. Several threads may call them with disjoint outputs.
#ifndef WORKER_MODEL_KERNELS_CPU_H_
#define WORKER_MODEL_KERNELS_CPU_H_

#include <cstdint>

#include "worker/model/ops.h"

namespace causeway {

struct ModelKernels {
  void (*rms_norm_rows)(const float* x, const float* delta, const float* gain,
                        int64_t rows, int64_t width, float epsilon, float* sum,
                        float* inverse_rms, float* normalized);
  // d_x may be d_normalized.
  void (*rms_norm_backward_rows)(const float* d_normalized, const float* x,
                                 const float* inverse_rms, const float* gain,
                                 int64_t rows, int64_t width, bool accumulate,
                                 float* d_x, float* d_gain, float* normalized);

  // Rotates `heads` consecutive vectors of head_dim values by the angles of one
  // position; cosine and sine have head_dim / 2 values. `sign` is 1, or -1 for
  // the backward pass.
  void (*rope_heads)(const float* cosine, const float* sine, int64_t heads,
                     int64_t head_dim, float sign, float* values);

  void (*swiglu_rows)(const float* gate_up, int64_t rows, int64_t width,
                      float* output);
  void (*swiglu_backward_rows)(const float* gate_up, const float* d_output,
                               int64_t rows, int64_t width, float* d_gate_up,
                               float* output);

  // With `gradient`, logits become scale * (softmax - one-hot); otherwise they
  // are overwritten by intermediate values.
  void (*cross_entropy_rows)(const int32_t* targets, int64_t rows,
                             int64_t vocab_size, bool gradient, float scale,
                             float* logits, float* losses);

  // Row r of scores ([rows, width], dense) belongs to query first + r and keeps
  // keys 0 .. first + r: they become exp(score - max), the others 0.
  // inverse_sum[r] <- 1 / their sum, log_sum_exp[r] <- max + log(their sum).
  void (*causal_exp_rows)(int64_t rows, int64_t first, int64_t width,
                          float* scores, float* inverse_sum,
                          float* log_sum_exp);
  // Processes the same rows in the backward pass:
  //   scores <- p = exp(score - log_sum_exp[r]),
  //   d_scores <- scale * p * (d_scores - mean[r]), both 0 for later keys.
  void (*causal_exp_backward_rows)(int64_t rows, int64_t first, int64_t width,
                                   const float* log_sum_exp, const float* mean,
                                   float scale, float* scores, float* d_scores);

  // values[i] <- factor * values[i].
  void (*scale)(float factor, int64_t size, float* values);
  // into[i] <- into[i] + values[i].
  void (*add)(const float* values, int64_t size, float* into);
  // to[i] <- a x[i] + b y[i]; `to` may be x or y.
  void (*linear_combination)(float a, const float* x, float b, const float* y,
                             int64_t size, float* to);
  float (*dot)(const float* a, const float* b, int64_t size);

  // Add in double.
  double (*sum)(const float* values, int64_t size);
  double (*squared_norm)(const float* values, int64_t size);
  void (*adamw)(const AdamWCoefficients& coefficients, const float* gradients,
                int64_t size, float* parameters, float* first_moment,
                float* second_moment, float* estimate);
};

// Returns the kernels of the best instruction set that this machine has.
const ModelKernels& CpuModelKernels();

}  // namespace causeway

#endif  // WORKER_MODEL_KERNELS_CPU_H_
