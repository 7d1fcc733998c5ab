// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Connects the ranks of an island on GPUs: by copies if they are threads that
// share a GPU, otherwise by NCCL.
#ifndef WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
#define WORKER_COLLECTIVE_GPU_COLLECTIVES_H_

#include <memory>

#include "absl/status/status.h"
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
  // Is true if all ranks are threads of this process that share this device.
  bool shared = false;
  // The time that NCCL may take to connect the ranks once all are there.
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

// The rest is available only with CUDA.

// Makes the collectives of `rank` among threads of one process that share CUDA
// device number `device`, where NCCL refuses to run: each rank reads the other
// ranks' memory on a stream of its own. Sums are in order of rank. Errors are
// those of CudaStatus; operations of more than 64 ranks are INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeSharedGpuCollectives(
    int rank, int device);

// Loads NCCL, which otherwise happens when it is first needed. The host
// provides the version that fits its driver and network, and programs also run
// on hosts without it. FAILED_PRECONDITION: it cannot be loaded; the message
// says why. Thread-safe.
absl::Status LoadNccl();

// Blocks until every rank has connected. Rank 0 puts NCCL's id in `rendezvous`,
// which must be new and not be used for anything else.
//   DEADLINE_EXCEEDED    Some rank did not come.
//   FAILED_PRECONDITION  NCCL cannot use the devices, as with two ranks on
//                        one, or there is no driver, or no NCCL.
//   UNAVAILABLE          A connection or the rendezvous failed.
//   INTERNAL             Any other error of NCCL or CUDA.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectNccl(
    const GpuCollectivesOptions& options, int rank, int size,
    Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GPU_COLLECTIVES_H_
