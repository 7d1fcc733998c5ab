// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What slows an island down, read off the times of its collective operations
// (after Dong et al. 2024, C4, arXiv 2406.04594: communication shows who is
// slow, because everybody meets there). A rank that computes slowly comes late
// to every operation; a slow link has its data late although the rank is there.
// A rank that is stuck or dead ends the operation instead (communicator.h).
//
//   const CollectiveDiagnosis diagnosis =
//       DiagnoseCollectives(communicator->rank(), communicator->TakeTimes());
#ifndef WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_
#define WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_

#include <string>

#include "absl/types/span.h"
#include "worker/collective/communicator.h"

namespace causeway {

struct CollectiveDiagnosis {
  enum class Kind {
    // Nothing stands out.
    kEven,
    // `rank` comes late.
    kSlowRank,
    // What comes from `rank` to the rank that asks comes slowly. With two ranks
    // this is the whole network; with more, a link that is slower than half the
    // speed of the others in the middle.
    kSlowLink,
  };
  Kind kind = Kind::kEven;
  int rank = 0;
  // Of the time, how much would be saved if it were as the others.
  double share = 0;
  // For people; empty for kEven.
  std::string text;
};

// What `rank` sees in `times`, of its own communicator. Broadcasts are left
// out: in them the ranks wait for orders. A share below a fifth does not stand
// out.
CollectiveDiagnosis DiagnoseCollectives(
    int rank, absl::Span<const CollectiveTimes> times);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_COLLECTIVE_DIAGNOSIS_H_
