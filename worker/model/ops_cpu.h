// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of ops.h on the CPU: oneDNN for matrix products, Highway for
// the rest, one fixed team of threads for both. Each operation is cut into one
// part per thread by shape and thread count alone, and partial sums are added
// in thread order: same inputs and same `threads`, same bits.
#ifndef WORKER_MODEL_OPS_CPU_H_
#define WORKER_MODEL_OPS_CPU_H_

#include <memory>

#include "worker/model/ops.h"

namespace causeway {

// Synchronous: every operation is complete when its call returns. `threads`, at
// least 1, counts the calling thread. Large allocations are backed by huge
// pages where the system grants them. Besides what is allocated it holds at
// most threads * (128 * (length + 1) + width) values of scratch for the largest
// AttentionShape::length and RmsNorm width seen.
std::unique_ptr<Ops> MakeCpuOps(int threads);

}  // namespace causeway

#endif  // WORKER_MODEL_OPS_CPU_H_
