// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replaces cuda_queue.cu in programs that are built without CUDA.
#include "absl/status/status.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(
    int /*device*/, QueuePriority /*priority*/) {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it with --config=cuda");
}

}  // namespace causeway
