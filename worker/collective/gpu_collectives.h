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
#include "worker/collective/device_collectives.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

struct GpuCollectivesOptions {
  // CUDA ordinal.
  int device = 0;
  // Whether all ranks are threads of this process and have this device.
  bool shared = false;
  // How long ranks wait for one another.
  absl::Duration connect_timeout = absl::Minutes(1);
  Clock now;
};

// Of the ranks of `transport`, over which they tell one another that they are
// ready. `rendezvous` as of ConnectNccl.
//   FAILED_PRECONDITION  the program was built without CUDA.
//   else                 as AwaitRanks, ConnectNccl and MakeCudaDeviceMemory.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Transport* transport,
    Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
