// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The vectorized loops of the optimizer's operations (ops.h), each on the
// calling thread. Conventions are as in kernels_cpu.h.
#ifndef WORKER_MODEL_UPDATE_KERNELS_CPU_H_
#define WORKER_MODEL_UPDATE_KERNELS_CPU_H_

#include <cstdint>

#include "worker/model/ops.h"

namespace causeway::kernels {

// Add in double.
double Sum(const float* values, int64_t size);
double SquaredNorm(const float* values, int64_t size);

void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
           int64_t size, float* parameters, float* first_moment,
           float* second_moment, float* estimate);

}  // namespace causeway::kernels

#endif  // WORKER_MODEL_UPDATE_KERNELS_CPU_H_
