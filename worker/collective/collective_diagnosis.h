// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What slows an island down, read off the times of its collective operations
// (after Dong et al. 2024, C4, arXiv 2406.04594: communication shows who is
// slow, because everybody meets there). A rank that computes slowly comes late
// to every operation; a slow link has its data late although the rank is there.
// A rank that is stuck or dead ends the operation instead (communicator.h).
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
    // `rank` comes late.
    kSlowRank,
    // What comes from `rank` to `to_rank` comes slowly. With two ranks this is
    // the whole network; with more, a link that is slower than half the speed
    // of the others in the middle.
    kSlowLink,
  };
  Kind kind = Kind::kEven;
  int rank = 0;
  int to_rank = 0;
  // Of the time, how much would be saved if it were as the others.
  double share = 0;
  // Of a slow link, in bytes per second, and of the others to the same rank in
  // the middle; 0 if there are none.
  double speed = 0;
  double other_speed = 0;
};

// What `rank` sees in `times`, of its own communicator. Broadcasts are left
// out: in them the ranks wait for orders. A share below a fifth does not stand
// out.
CollectiveDiagnosis DiagnoseCollectives(
    int rank, absl::Span<const CollectiveTimes> times);

// What costs most of all that the ranks see: a link is seen only by the rank
// that receives. Every rank calls it and gets the same. Errors of Communicator.
absl::StatusOr<CollectiveDiagnosis> WorstOf(const CollectiveDiagnosis& own,
                                            Communicator* communicator);

// For status and events, with a sentence for people.
v1::RankTrouble ToRankTrouble(const CollectiveDiagnosis& diagnosis);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_
