// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/gpu_collectives.h"

#include <utility>

#include "common/status_macros.h"
#include "worker/collective/cuda_device_memory.h"
#include "worker/collective/nccl_collectives.h"
#include "worker/collective/shared_device_collectives.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Rendezvous* rendezvous) {
  if (options.shared) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory,
                     MakeCudaDeviceMemory(options.device));
    return MakeSharedDeviceCollectives(options.rank, std::move(memory));
  }
  return ConnectNccl({.rank = options.rank,
                      .size = options.size,
                      .device = options.device,
                      .connect_timeout = options.connect_timeout,
                      .now = options.now},
                     rendezvous);
}

}  // namespace causeway
