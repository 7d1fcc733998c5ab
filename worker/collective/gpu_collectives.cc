// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/gpu_collectives.h"

#include <utility>

#include "common/status_macros.h"
#include "worker/collective/await_ranks.h"
#include "worker/collective/cuda_device_memory.h"
#include "worker/collective/nccl_collectives.h"
#include "worker/collective/nccl_library.h"
#include "worker/collective/shared_device_collectives.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Transport* transport,
    Rendezvous* rendezvous) {
  if (options.shared) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory,
                     MakeCudaDeviceMemory(options.device));
    return MakeSharedDeviceCollectives(transport->rank(), std::move(memory));
  }
  RETURN_IF_ERROR(LoadNccl().status());
  // NCCL would wait for those that do not come, and not say for whom.
  RETURN_IF_ERROR(
      AwaitRanks(transport, options.connect_timeout, options.now, rendezvous));
  return ConnectNccl({.rank = transport->rank(),
                      .size = transport->size(),
                      .device = options.device,
                      .connect_timeout = options.connect_timeout,
                      .now = options.now},
                     rendezvous);
}

}  // namespace causeway
