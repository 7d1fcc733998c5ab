// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replaces cuda_queue.cu in programs that are built without CUDA.
#include "absl/status/status.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {

namespace {

absl::Status NoCuda() {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it with --config=cuda");
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(
    int /*device*/, QueuePriority /*priority*/) {
  return NoCuda();
}

absl::StatusOr<int> DeviceOfMemory(const void* /*memory*/) { return NoCuda(); }

absl::Status AwaitStream(int /*device*/, void* /*stream*/) { return NoCuda(); }

KeepCurrentDevice::KeepCurrentDevice() = default;
KeepCurrentDevice::~KeepCurrentDevice() = default;

}  // namespace causeway
