// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds the rank to blame when a collective operation fails;
// message_communicator.h explains the idea. Each rank reports once, to the
// rendezvous, which rank 0 keeps.
#ifndef WORKER_COLLECTIVE_CULPRIT_H_
#define WORKER_COLLECTIVE_CULPRIT_H_

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

// Other ranks may need the rendezvous for this long after a failure. If rank 0
// ends sooner, they blame it.
inline constexpr absl::Duration kReportsNeeded = absl::Seconds(4);

// Tells the other ranks that `rank` gives up for a reason of its own. Has no
// effect if the rank has already reported, or if IsWithoutRank0.
void ReportOwnFailure(int rank, const absl::Status& reason,
                      Rendezvous* rendezvous);

// Returns the reasons of those among `ranks` ranks, other than 0, that have
// reported to give up for a reason of their own: ABORTED; otherwise OK. It is
// for rank 0, whose table answers at once.
absl::Status CheckGivenUp(int ranks, Rendezvous* rendezvous);

// Describes a failure as one rank has seen it.
struct SeenFailure {
  int rank = 0;
  int ranks = 1;
  // `rank` waited in vain for `suspect` (DEADLINE_EXCEEDED) or lost its
  // connection to it (UNAVAILABLE).
  int suspect = 0;
  absl::Status status;
  // The ranks that the network does not reach from here.
  std::vector<int> unreached;
  // The longest time that a rank takes to notice by itself that the network
  // does not reach another rank, or that a rank has ended which does not reach
  // rank 0.
  absl::Duration patience = absl::Seconds(5);
};

// Reports the failure, calls `reported`, which lets the other ranks fail, too,
// and returns the status for every rank. Its message names the culprit, which
// may be neither this rank nor the suspect. Takes up to a second for each rank
// on the way to the culprit, and more if rank 0 is stuck, or reaches a rank
// that others do not.
absl::Status FindCulprit(const SeenFailure& failure, Rendezvous* rendezvous,
                         absl::FunctionRef<void()> reported);

// Returns whether the network reaches rank `to` from rank `from`, by the report
// of `from`; nothing if no report comes within `timeout`.
std::optional<bool> Reaches(int from, int to, absl::Duration timeout,
                            Rendezvous* rendezvous);

// Reports that `rank` cannot connect to rank `other`, which runs. Returns the
// status for every rank.
absl::Status ReportBrokenLink(int rank, int other, absl::string_view what,
                              Rendezvous* rendezvous);

// Reports that `rank` has ended before it was connected.
void ReportDeadRank(int rank, absl::string_view what, Rendezvous* rendezvous);

// Returns the status for every rank if a rank that cannot connect has been
// reported, or is within `timeout`; otherwise OK.
absl::Status CheckUnconnected(absl::Duration timeout, Rendezvous* rendezvous);

// Like CheckUnconnected, for a rank that is connecting: also blames rank 0, if
// the table is away for 5 seconds. Takes kRendezvousAnswer at least, unless it
// returns an error. RESOURCE_EXHAUSTED blames nobody; see Rendezvous.
absl::Status CheckWhileConnecting(Rendezvous* rendezvous);

// Returns an error that blames rank `culprit` because of `what`: UNAVAILABLE
// for a dead rank, another code for a stuck one.
absl::Status BlameRank(int culprit, absl::StatusCode code,
                       absl::string_view what);

// Returns a DATA_LOSS error that blames rank `culprit` for wrong numbers.
absl::Status BlameCorruptRank(int culprit, absl::string_view what);

// Returns whether `status`, from one of these functions, says that rank 0 is
// dead or stuck. Then nothing that other ranks tell it arrives, and each try
// takes time.
bool IsWithoutRank0(const absl::Status& status);

// Returns the rank that `status`, from one of these functions, blames,
// and the trouble: STUCK_RANK, DEAD_RANK, CORRUPT_RANK, or SLOW_LINK with a
// share of 1 if two ranks cannot reach each other. Returns nothing if a rank
// gave up for a reason of its own, so that none is to blame.
std::optional<v1::RankTrouble> RankTroubleOf(const absl::Status& status);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CULPRIT_H_
