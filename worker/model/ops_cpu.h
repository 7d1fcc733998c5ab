// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of ops.h on the CPU: oneDNN for matrix products, Highway for
// the rest, one fixed team of threads for both. Only the shape and the thread
// count determine each thread's part of an operation, and partial sums are
// added in thread order: the same inputs and the same `threads` give the same
// bits.
#ifndef WORKER_MODEL_OPS_CPU_H_
#define WORKER_MODEL_OPS_CPU_H_

#include <memory>

#include "worker/model/ops.h"

namespace causeway {

// Returns operations that are complete when their calls return. `threads`, at
// least 1, includes the calling thread. Large allocations use huge pages where
// the system grants them. Besides allocations the object holds at most threads
// * (128 * (length + 1) + width) values of scratch memory for the largest
// AttentionShape::length and RmsNorm width seen.
std::unique_ptr<Ops> MakeCpuOps(int threads);

}  // namespace causeway

#endif  // WORKER_MODEL_OPS_CPU_H_
