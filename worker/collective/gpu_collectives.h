// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Connects the ranks of an island on GPUs: by copies if they are threads that
// share one GPU, else by NCCL.
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
  // Whether all ranks are threads of this process that share this device.
  bool shared = false;
  // The time that NCCL may take to connect ranks that are all there.
  absl::Duration timeout = absl::Minutes(1);
  Clock now;
};

// Connects the ranks of `communicator`. The ranks first tell each other over it
// that their devices work: NCCL would wait for a missing rank without naming
// it. ConnectNccl describes `rendezvous`.
//   FAILED_PRECONDITION  The program was built without CUDA.
//   otherwise            See Communicator, ConnectNccl and
//                        MakeSharedGpuCollectives.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Communicator* communicator,
    Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
