// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives of ranks that are threads of one process and share one GPU, where
// NCCL refuses to run. Each rank reads directly from the memory of the other
// ranks.
#ifndef WORKER_COLLECTIVE_SHARED_GPU_COLLECTIVES_H_
#define WORKER_COLLECTIVE_SHARED_GPU_COLLECTIVES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/device_collectives.h"

namespace causeway {

// Makes the collectives of `rank` on CUDA device number `device`, with a stream
// of their own. Sums are in order of rank. Errors are those of CudaStatus;
// operations of more than 64 ranks are INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeSharedGpuCollectives(
    int rank, int device);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_SHARED_GPU_COLLECTIVES_H_
