// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which rank is to blame when a collective operation fails; the idea is in
// message_communicator.h. Each rank reports once, to the rendezvous, which rank
// 0 keeps.
#ifndef WORKER_COLLECTIVE_CULPRIT_H_
#define WORKER_COLLECTIVE_CULPRIT_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

// For so long after a failure the other ranks may need the rendezvous: rank 0
// must not end sooner, or it will be taken for the culprit.
inline constexpr absl::Duration kReportsNeeded = absl::Seconds(4);

// Tells the others that `rank` gives up for a reason of its own. A rank that
// has reported before is left at that.
void ReportOwnFailure(int rank, const absl::Status& reason,
                      Rendezvous* rendezvous);

// Reports that `rank` waited in vain for `suspect` (DEADLINE_EXCEEDED) or lost
// its connection to it (UNAVAILABLE), and returns what every rank should say:
// the message names the culprit, which may be another one. Takes up to a second
// for each rank that has to be asked, and a few if rank 0 is stuck.
absl::Status FindCulprit(int rank, int suspect, const absl::Status& seen,
                         Rendezvous* rendezvous);

// Which rank `status`, from FindCulprit, blames and for what: STUCK_RANK or
// DEAD_RANK, or SLOW_LINK with a share of 1 where two ranks do not reach one
// another. Nothing if it blames none: a rank has given up for a reason of its
// own.
std::optional<v1::RankTrouble> RankTroubleOf(const absl::Status& status);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CULPRIT_H_
