// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The input of cli/plan/exchange_simulator.h, and how busy resources are. Pure.
#ifndef CLI_PLAN_SIMULATION_H_
#define CLI_PLAN_SIMULATION_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"

namespace causeway {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct Exchange {
  // The time at which training sends, in inner steps since the period began;
  // fractions are within a step.
  double ready_at = 0;
  // The time at which training waits, in the same units: not before ready_at,
  // and perhaps in a later period.
  double needed_at = 0;
  // The bits of each island's upload, apart from its up_share, and download.
  double up_bits = 0;
  double down_bits = 0;
  double merge_seconds = 0;
};

// Bits per second in each direction; kUnlimited for no bound.
struct LinkRates {
  double up = kUnlimited;
  double down = kUnlimited;
};

struct SimulatedIsland {
  // The time of one inner step without synchronization.
  double step_seconds = 0;
  LinkRates link;
  // The time to the coordinator and back.
  double round_trip_seconds = 0;
  // The part of Exchange::up_bits that the island sends: above 0, at most 1.
  double up_share = 1;
};

struct Simulation {
  double period_steps = 0;
  std::vector<Exchange> exchanges;
  std::vector<SimulatedIsland> islands;
  // The coordinator's link as islands see it: `up` is what it receives.
  LinkRates coordinator;
  // If true, TCP also begins with a small window after each pause of a link,
  // not only on its first use.
  bool slow_start_after_idle = false;
  // 0 simulates the long run. Otherwise periods are counted from the start, at
  // least 2, and all but the first are measured.
  uint64_t periods = 0;
};

// The seconds of one period for which each resource is busy with exchanges. In
// the long run a period is at least as long as the longest of them, however
// late exchanges may be.
struct PeriodTimes {
  // Training of the slowest island, and the slowest links.
  double training = 0;
  double uplink = 0;
  double downlink = 0;
  // The coordinator's link, for all islands.
  double coordinator_in = 0;
  double coordinator_out = 0;
  double merge = 0;
};

// Checks the simulation.
//   INVALID_ARGUMENT  as for Simulate.
absl::Status CheckSimulation(const Simulation& simulation);

PeriodTimes TimesOf(const Simulation& simulation);

// Returns the long-run length of a period, which the busiest resource
// determines; 0 if nothing binds the islands together.
double LongRunPeriod(const Simulation& simulation);

}  // namespace causeway

#endif  // CLI_PLAN_SIMULATION_H_
