// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Simulates by discrete events how fast islands train, and how much their links
// carry, when training waits for exchanges with a coordinator. Pure.
//
// An exchange recurs in every period of inner steps. An island starts it when
// its training is at `ready_at`, and stands still at `needed_at` until the
// exchange is complete. An exchange passes
//
//   1. the island's uplink, one exchange after the other: the offer goes ahead
//      of the bytes, which do not wait for its answer;
//   2. half a round trip, and the uploads of the other islands;
//   3. the coordinator's merge, one exchange after the other;
//   4. the island's downlink, one exchange after the other: the island has
//      already asked for the update;
//   5. half a round trip.
//
// TCP's slow start: a link that is used for the first time, or (if configured)
// after a pause, carries ten segments in the first round trip and twice as much
// in each following one, until it is full.
//
// Islands that transfer at the same time share the coordinator's link evenly,
// except that none gets more than its own link carries (max-min fairness). Not
// modelled: loss, encoding on the island, changing speeds, islands that come
// and go.
//
// With layers as exchanges, one island, no latency and no downlink this is the
// bandwidth simulation of Streaming DiLoCo (arXiv 2501.18512, section 3.1):
// cli/plan/published_table_test.cc.
#ifndef CLI_PLAN_EXCHANGE_SIMULATOR_H_
#define CLI_PLAN_EXCHANGE_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/simulation.h"

namespace causeway {

// A link's traffic in bits per second.
struct LinkTraffic {
  double mean = 0;
  // The most in any second by the simulation's clock.
  double peak = 0;
};

struct TrafficBothWays {
  LinkTraffic up;
  LinkTraffic down;
};

struct SimulatedRun {
  struct Island {
    // The share of the time that is spent training.
    double utilization = 0;
    TrafficBothWays traffic;
  };
  // The islands, in the order of Simulation::islands.
  std::vector<Island> islands;
  // The mean over the islands.
  double utilization = 0;
  TrafficBothWays coordinator;
  PeriodTimes busy;
  // The most exchanges that an island had under way at once.
  uint64_t in_flight = 0;
};

// Simulates the long run, or the first periods (Simulation::periods).
//   INVALID_ARGUMENT  names the value that is out of range: a period, step time
//                     or rate that is not above 0, no islands, a negative time
//                     or size, an exchange needed before it is ready.
absl::StatusOr<SimulatedRun> Simulate(const Simulation& simulation);

}  // namespace causeway

#endif  // CLI_PLAN_EXCHANGE_SIMULATOR_H_
