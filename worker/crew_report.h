// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the coordinator and the supervisor about an island's crew
// (worker/collective/crew.h).
#ifndef WORKER_CREW_REPORT_H_
#define WORKER_CREW_REPORT_H_

#include <optional>
#include <set>
#include <string>

#include "proto/coordinator.pb.h"
#include "worker/collective/crew.h"

namespace causeway {

// Returns words on the processes that the island goes without if those in
// `present` are there, as "2 of 3 processes, without 1"; or "".
std::string WithoutText(const CrewRules& rules, const std::set<int>& present);

// Returns the same for the coordinator: their first rank is dead. `ranks` are
// those of each process.
std::optional<v1::RankTrouble> WithoutTrouble(const CrewRules& rules,
                                              const std::set<int>& present,
                                              int ranks);

// Tells the supervisor, if there is one, that this process has `count` ranks
// from `first` on, and no others.
void StampOwnRanks(int first, int count);

}  // namespace causeway

#endif  // WORKER_CREW_REPORT_H_
