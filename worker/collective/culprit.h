// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which rank is to blame when a collective operation fails; the idea is in
// message_communicator.h. Each rank reports once, to the rendezvous.
#ifndef WORKER_COLLECTIVE_CULPRIT_H_
#define WORKER_COLLECTIVE_CULPRIT_H_

#include "absl/status/status.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

// Tells the others that `rank` gives up for a reason of its own. A rank that
// has reported before is left at that.
void ReportOwnFailure(int rank, const absl::Status& reason,
                      Rendezvous* rendezvous);

// Reports that `rank` waited in vain for `suspect` (DEADLINE_EXCEEDED) or lost
// its connection to it (UNAVAILABLE), and returns what every rank should say:
// the message names the culprit, which may be another one. Takes up to a second
// for each rank that has to be asked, and a few if the rendezvous is away.
absl::Status FindCulprit(int rank, int suspect, const absl::Status& seen,
                         Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CULPRIT_H_
