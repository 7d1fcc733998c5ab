// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A DeviceQueue on a stream of an NVIDIA GPU.
#ifndef WORKER_REPLICA_DEVICE_CUDA_QUEUE_H_
#define WORKER_REPLICA_DEVICE_CUDA_QUEUE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {

enum class QueuePriority {
  // Training waits for it.
  kHigh,
  // Its kernels take the time that training leaves.
  kLow,
};

// Returns a queue of CUDA device number `device`. FAILED_PRECONDITION: the
// program was built without CUDA. Other errors are those of CudaStatus.
absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(
    int device, QueuePriority priority);

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_CUDA_QUEUE_H_
