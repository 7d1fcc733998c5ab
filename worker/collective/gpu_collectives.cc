// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/gpu_collectives.h"

#include "common/status_macros.h"
#include "worker/collective/nccl_collectives.h"
#include "worker/collective/nccl_library.h"
#include "worker/collective/shared_gpu_collectives.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Communicator* communicator,
    Rendezvous* rendezvous) {
  if (options.shared) {
    return MakeSharedGpuCollectives(communicator->rank(), options.device);
  }
  RETURN_IF_ERROR(LoadNccl().status());
  RETURN_IF_ERROR(communicator->AllToAll({}, {}));
  return ConnectNccl({.rank = communicator->rank(),
                      .size = communicator->size(),
                      .device = options.device,
                      .connect_timeout = options.timeout,
                      .now = options.now},
                     rendezvous);
}

}  // namespace causeway
