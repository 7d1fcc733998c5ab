// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Newton-Schulz on the CPU.
#ifndef WORKER_MODEL_ORTHOGONALIZE_CPU_H_
#define WORKER_MODEL_ORTHOGONALIZE_CPU_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "worker/model/kernels_cpu.h"
#include "worker/model/ops.h"

namespace causeway {

// Returns whether this machine orthogonalizes such a matrix in bf16, with sums
// in fp32: it has matrix units (bf16_gemm.h), and the matrix is large enough
// for them. Otherwise everything is fp32.
bool OrthogonalizesInBf16(int64_t rows, int64_t columns);

// Does the same as Ops::Orthogonalize on the threads of `pool`. The products of
// each value do not depend on the number of threads.
void OrthogonalizeOnCpu(absl::Span<const Quintic> iterations, int64_t rows,
                        int64_t columns, const ModelKernels& kernels,
                        ThreadPool* pool, float* matrix, float* scratch);

}  // namespace causeway

#endif  // WORKER_MODEL_ORTHOGONALIZE_CPU_H_
