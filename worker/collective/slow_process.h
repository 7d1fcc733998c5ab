// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds out whether an island would be faster without one of its processes,
// from the diagnoses of consecutive windows that its ranks have agreed on
// (collective_diagnosis.h).
#ifndef WORKER_COLLECTIVE_SLOW_PROCESS_H_
#define WORKER_COLLECTIVE_SLOW_PROCESS_H_

#include <optional>

#include "absl/types/span.h"
#include "worker/collective/collective_diagnosis.h"

namespace causeway {

// A process is left out only if this many windows in a row blame it, because
// one may be an incident.
inline constexpr int kSlowWindows = 3;

struct SlowProcessRules {
  // The least share of its time that the island must save.
  double least_saved = 0.1;
  // The number of ranks of each process, and of processes in the crew.
  int ranks = 1;
  int processes = 1;
  // The size of the crew without one process; 0 if none is allowed.
  int fewer = 0;
};

struct SlowProcess {
  // The place of the process in the crew: rank / ranks.
  int place = 0;
  // The share of the time that the process has cost, in the window where it
  // cost least, and the share that the island saves without it.
  double share = 0;
  double saved = 0;
};

// Returns the share of its time that an island saves if `fewer` instead of
// `processes` processes train, without the cause that costs `share` of the
// time. They share all the computing, so the rest takes longer in proportion.
// Negative: the island would be slower.
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
