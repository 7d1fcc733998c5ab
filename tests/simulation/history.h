// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One history: a run from its beginning to its end, with faults on the way.
//
// While the scenario's faulty time lasts, faults strike at random times. After
// a while, supervisors restart dead processes. Then everything is healed, and
// the run must finish within a bound: islands, network and disk are well, so
// nothing may wait for ever. After every event of the coordinator the
// invariants hold (tests/simulation/checker.h).
#ifndef TESTS_SIMULATION_HISTORY_H_
#define TESTS_SIMULATION_HISTORY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/scenario.h"

namespace causeway::simulation {

struct HistoryResult {
  // The first violation, or an empty string.
  std::string violation;
  uint64_t events = 0;
  uint64_t commits = 0;
  // The version of the model that was measured last.
  uint64_t validated_version = 0;
  uint64_t faults = 0;
  absl::Duration virtual_time;
};

// Runs a history. Deterministic in its arguments. With `trace`, prints the
// events.
HistoryResult RunHistory(uint64_t seed, const Limits& limits, bool trace);

// Returns limits under which the history of `seed` is shorter (fewer islands,
// fragments, rounds and kinds of faults) and still fails, if it fails under
// `limits`.
Limits Shrink(uint64_t seed, Limits limits);

// Returns the flags that set `limits`.
std::string FlagsOf(const Limits& limits);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_HISTORY_H_
