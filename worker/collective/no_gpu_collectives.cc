// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replaces gpu_collectives.cc in programs that are built without CUDA.
#include "absl/status/status.h"
#include "worker/collective/gpu_collectives.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& /*options*/, Communicator* /*communicator*/,
    Rendezvous* /*rendezvous*/) {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it with --config=cuda on a "
      "machine with the CUDA toolkit, or use --device=cpu");
}

}  // namespace causeway
