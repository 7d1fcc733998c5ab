// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the coordinator and the supervisor about an island's crew
// (worker/collective/crew.h).
#ifndef WORKER_CREW_REPORT_H_
#define WORKER_CREW_REPORT_H_

#include <optional>
#include <set>

#include "proto/coordinator.pb.h"
#include "worker/collective/crew.h"

namespace causeway {

// Tells of the processes that are not in `present`, as "the island has 2 of 3
// processes, without 1". The dead rank is the first one of the missing
// processes that are not avoided; returns nothing if there is none. Each
// process has `ranks` ranks.
std::optional<v1::RankTrouble> WithoutTrouble(const CrewRules& rules,
                                              const std::set<int>& present,
                                              int ranks);

// Tells the supervisor, if any, that this process has only the ranks from
// `first` to `first` + `count` - 1.
void StampOwnRanks(int first, int count);

}  // namespace causeway

#endif  // WORKER_CREW_REPORT_H_
