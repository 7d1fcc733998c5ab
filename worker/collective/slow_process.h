// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides whether an island would be faster without one of its processes, from
// what its ranks have agreed on in consecutive windows
// (collective_diagnosis.h). Does nothing itself.
#ifndef WORKER_COLLECTIVE_SLOW_PROCESS_H_
#define WORKER_COLLECTIVE_SLOW_PROCESS_H_

#include <optional>

#include "absl/types/span.h"
#include "worker/collective/collective_diagnosis.h"

namespace causeway {

// One window may be an incident, so nobody is left out for fewer.
inline constexpr int kSlowWindows = 3;

struct SlowProcessRules {
  // The least share of its time that the island must save.
  double least_saved = 0.1;
  // The ranks of each process, and the processes of the crew.
  int ranks = 1;
  int processes = 1;
  // The size of the crew that goes on without one process; 0 if none may.
  int fewer = 0;
};

struct SlowProcess {
  // The place of the process in the crew: rank / ranks.
  int place = 0;
  // The share of the time that it has cost, in the window in which that is
  // least, and the share that the island saves without it.
  double share = 0;
  double saved = 0;
};

// Returns the share of its time that an island saves if `fewer` of its
// `processes` go on, without what costs it `share` of the time. The fewer share
// all the computing, so what is left takes longer in proportion. Negative: the
// island would be slower.
double ShareSaved(double share, int processes, int fewer);

// Returns the process without which the island would be faster. It is blamed in
// each of the last kSlowWindows windows, itself or as one end of a link; if one
// link is blamed in all, it is the end with the higher rank. It never is the
// first process, which leads.
std::optional<SlowProcess> FindSlowProcess(
    absl::Span<const CollectiveDiagnosis> windows,
    const SlowProcessRules& rules);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_SLOW_PROCESS_H_
