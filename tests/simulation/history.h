// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One history: a run from its beginning to its end, with faults on the way.
//
// While the scenario's faulty time lasts, faults strike at random times.
// Supervisors start again whatever has died, after a while. Then everything is
// healed, and the run must finish within a bound: islands, network and disk
// are well, so nothing may be left that waits for ever. After every event of
// the coordinator the invariants hold (tests/simulation/checker.h).
#ifndef TESTS_SIMULATION_HISTORY_H_
#define TESTS_SIMULATION_HISTORY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/scenario.h"

namespace causeway::simulation {

struct HistoryResult {
  // The first violation, or empty.
  std::string violation;
  uint64_t events = 0;
  uint64_t commits = 0;
  uint64_t faults = 0;
  absl::Duration virtual_time;
};

// Deterministic in its arguments. With `trace`, prints what happens.
HistoryResult RunHistory(uint64_t seed, const Limits& limits, bool trace);

// Limits under which the history of `seed` fails too, if it does under
// `limits`, and is shorter: fewer islands, fragments, rounds and kinds of
// faults.
Limits Shrink(uint64_t seed, Limits limits);

// The flags that set `limits`.
std::string FlagsOf(const Limits& limits);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_HISTORY_H_
