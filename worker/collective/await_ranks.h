// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A word from each rank to each that it is ready, before they wait for one
// another where nobody could say who is missing, or why.
//
//   // This rank's device is in order.
//   RETURN_IF_ERROR(AwaitRanks(transport, timeout, now, rendezvous));
//   // So are the others'.
#ifndef WORKER_COLLECTIVE_AWAIT_RANKS_H_
#define WORKER_COLLECTIVE_AWAIT_RANKS_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

// Blocks until every rank has called it, and takes tag 0 of the transport. A
// rank that will not come reports its reason (ReportOwnFailure) and closes its
// transport. Errors are those of FindCulprit; the transport is closed then.
absl::Status AwaitRanks(Transport* transport, absl::Duration timeout,
                        const Clock& now, Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_AWAIT_RANKS_H_
