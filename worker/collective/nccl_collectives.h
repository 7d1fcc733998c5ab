// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives between GPUs, one per rank, by NCCL. NCCL chooses the order of
// sums; all ranks get the same bits.
//
// A rank that vanishes leaves NCCL's kernels spinning on the other GPUs. NCCL's
// communicator is therefore non-blocking: this rank polls it and its own
// stream, and aborts it at the deadline or at the first error. Messages then
// find the culprit (message_communicator.h).
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
  // CUDA ordinal, a different GPU for each rank.
  int device = 0;
  // The time that ranks wait for each other in ConnectNccl.
  absl::Duration connect_timeout = absl::Minutes(1);
  Clock now;
};

// Blocks until every rank has connected. Rank 0 leaves NCCL's id in
// `rendezvous`, which must be new and must not be used for anything else.
//   DEADLINE_EXCEEDED    Some rank did not come.
//   FAILED_PRECONDITION  NCCL cannot use the devices, as with two ranks on
//                        one, or there is no driver, or no NCCL.
//   UNAVAILABLE          A connection or the rendezvous failed.
//   INTERNAL             Any other error of NCCL or CUDA.
absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectNccl(
    const NcclOptions& options, Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_NCCL_COLLECTIVES_H_
