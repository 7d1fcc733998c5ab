// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of an island on GPUs exchange vectors: by copies if they are
// threads that have one GPU, else by NCCL.
#ifndef WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
#define WORKER_COLLECTIVE_GPU_COLLECTIVES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/communicator.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

struct GpuCollectivesOptions {
  // CUDA ordinal.
  int device = 0;
  // Whether all ranks are threads of this process and have this device.
  bool shared = false;
  // How long NCCL may take to connect ranks that are all there.
  absl::Duration timeout = absl::Minutes(1);
  Clock now;
};

// For the ranks of `communicator`, over which they tell one another that their
// devices are in order before they connect: NCCL would wait for one that does
// not come, and not say for whom. `rendezvous` as of ConnectNccl.
//   FAILED_PRECONDITION  the program was built without CUDA.
//   else                 as Communicator, ConnectNccl and
//                        MakeSharedGpuCollectives.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Communicator* communicator,
    Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
