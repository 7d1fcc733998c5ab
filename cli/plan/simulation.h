// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What cli/plan/exchange_simulator.h simulates, and how busy it all is. Pure.
#ifndef CLI_PLAN_SIMULATION_H_
#define CLI_PLAN_SIMULATION_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"

namespace causeway {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct Exchange {
  // In inner steps since the period began; fractions are within a step.
  double ready_at = 0;
  // The same, not before ready_at; may lie in a later period.
  double needed_at = 0;
  // Each island's upload and download.
  double up_bits = 0;
  double down_bits = 0;
  double merge_seconds = 0;
};

// Bits a second in each direction; kUnlimited for no bound.
struct LinkRates {
  double up = kUnlimited;
  double down = kUnlimited;
};

struct SimulatedIsland {
  // Time of one inner step without synchronization.
  double step_seconds = 0;
  LinkRates link;
  // To the coordinator and back.
  double round_trip_seconds = 0;
};

struct Simulation {
  double period_steps = 0;
  std::vector<Exchange> exchanges;
  std::vector<SimulatedIsland> islands;
  // Of the coordinator, as islands see it: `up` is what it receives.
  LinkRates coordinator;
  // Whether TCP begins with a small window after each pause of a link, and not
  // only when it is used for the first time.
  bool slow_start_after_idle = false;
  // 0 is for what repeats in the long run. Otherwise periods are counted from
  // the start, and all but the first are measured; at least 2.
  uint64_t periods = 0;
};

// Seconds in which each is busy for the exchanges of one period. In the long
// run no period is shorter than the longest of them, however late exchanges may
// be.
struct PeriodTimes {
  // Of the slowest island, and the slowest links.
  double training = 0;
  double uplink = 0;
  double downlink = 0;
  // The coordinator's link, for all islands.
  double coordinator_in = 0;
  double coordinator_out = 0;
  double merge = 0;
};

//   INVALID_ARGUMENT  as of Simulate.
absl::Status CheckSimulation(const Simulation& simulation);

PeriodTimes TimesOf(const Simulation& simulation);

// What is busiest sets the pace of all; 0 if nothing binds the islands
// together.
double LongRunPeriod(const Simulation& simulation);

}  // namespace causeway

#endif  // CLI_PLAN_SIMULATION_H_
