// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds what slows an island down from the times of its collective operations,
// at which all ranks meet (after Dong et al. 2024, C4, arXiv 2406.04594). A
// rank that computes slowly is late for every operation; over a slow link, the
// data are late although the rank is there. A stuck or dead rank ends the
// operation instead (communicator.h).
//
//   const CollectiveDiagnosis own =
//       DiagnoseCollectives(communicator->rank(), communicator->TakeTimes());
//   ASSIGN_OR_RETURN(const CollectiveDiagnosis agreed,
//                    WorstOf(own, communicator));
#ifndef WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_
#define WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/communicator.h"

namespace causeway {

struct CollectiveDiagnosis {
  enum class Kind {
    // Nothing stands out.
    kEven,
    // `rank` is late.
    kSlowRank,
    // Data from `rank` to `to_rank` are slow. With more than two ranks, the
    // link has less than half the median speed of the other links.
    kSlowLink,
  };
  Kind kind = Kind::kEven;
  int rank = 0;
  int to_rank = 0;
  // The share of the time that would be saved if the rank or link were like the
  // others.
  double share = 0;
  // The speed of a slow link, and the median speed of the other links to the
  // same rank, or 0 if there are none; in bytes per second.
  double speed = 0;
  double other_speed = 0;
};

// Returns the diagnosis of `rank` from its own communicator's `times`. Ignores
// broadcasts, in which ranks wait for orders, and shares below a fifth. Neither
// a rank nor a link is called slow for a single operation: while a link fails
// for a moment, other ranks wait for the ranks at its ends.
CollectiveDiagnosis DiagnoseCollectives(
    int rank, absl::Span<const CollectiveTimes> times);

// Returns the costliest diagnosis of all ranks, because only the receiving rank
// sees a slow link. Every rank calls it and gets the same result. Errors are
// those of Communicator.
absl::StatusOr<CollectiveDiagnosis> WorstOf(const CollectiveDiagnosis& own,
                                            Communicator* communicator);

// Returns the diagnosis for status and events, with a sentence for people.
v1::RankTrouble ToRankTrouble(const CollectiveDiagnosis& diagnosis);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_
