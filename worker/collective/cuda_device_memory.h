// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPU's memory, shared by ranks of one process.
#ifndef WORKER_COLLECTIVE_CUDA_DEVICE_MEMORY_H_
#define WORKER_COLLECTIVE_CUDA_DEVICE_MEMORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/shared_device_collectives.h"

namespace causeway {

// Of CUDA device number `device`, with a stream of its own. For up to
// kMaxVectorsSummed ranks (vector_sum.h). Errors of CudaStatus.
absl::StatusOr<std::unique_ptr<DeviceMemory>> MakeCudaDeviceMemory(int device);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CUDA_DEVICE_MEMORY_H_
