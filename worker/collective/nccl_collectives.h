// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives between GPUs, one to a rank, by NCCL. Sums are in NCCL's order,
// the same bits on every rank.
//
// A rank that vanishes leaves NCCL's kernels spinning on the other GPUs. So the
// communicator is one that does not block: this rank polls it and its own
// stream, and aborts it at the deadline or at its first error. Who is to blame
// is then found over messages (message_communicator.h).
#ifndef WORKER_COLLECTIVE_NCCL_COLLECTIVES_H_
#define WORKER_COLLECTIVE_NCCL_COLLECTIVES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  // CUDA ordinal; of another rank on every rank.
  int device = 0;
  // How long ranks wait for one another here.
  absl::Duration connect_timeout = absl::Minutes(1);
  Clock now;
};

// Blocks until every rank has connected; rank 0 leaves NCCL's id in
// `rendezvous`, which must be new and is used for that only.
//   DEADLINE_EXCEEDED    some rank did not come.
//   FAILED_PRECONDITION  NCCL cannot use the devices so: two ranks on one, for
//                        instance; or there is no driver, or no NCCL.
//   UNAVAILABLE          a connection or the rendezvous failed.
//   INTERNAL             other errors of NCCL and CUDA.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectNccl(
    const NcclOptions& options, Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_NCCL_COLLECTIVES_H_
