// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a simulated history is made of: the run's configuration, the islands,
// and the faults that may happen. Drawn from the history's seed, and from
// limits that a person (or the search for a shorter failing history) sets.
#ifndef TESTS_SIMULATION_SCENARIO_H_
#define TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway::simulation {

enum Fault : uint32_t {
  // Messages take seconds now and then, so that they overtake one another.
  kDelay,
  // Messages are lost, and streams break.
  kLoss,
  // Requests arrive twice, the second time late.
  kDuplicate,
  // An island cannot reach the coordinator for a while.
  kPartition,
  // An island's process is killed; another takes its place.
  kIslandKill,
  // An island's process is stopped for a while, and goes on.
  kIslandStall,
  // An island leaves the run before its end, and may come back.
  kIslandLeave,
  // Islands come when the run has begun.
  kLateIsland,
  // The coordinator is killed, and started again.
  kCoordinatorKill,
  // Writes take seconds.
  kSlowDisk,
  // Writes fail, and nothing is written.
  kFailedWrite,
  // A write fails, and whether it was written shows later.
  kUnknownWrite,
  // An operator pauses the run for a while.
  kPause,
  // An operator evicts an island.
  kEvict,
  // Clocks run at rates that differ by up to a tenth.
  kClockSkew,
  // Islands keep checkpoints, from which the next process goes on.
  kCheckpoint,
  // An operator drains an island.
  kDrain,
  // Contributions are outliers or not finite, or an outer step would be; an
  // operator decides on them.
  kOutlier,
  // How many there are.
  kFaults,
};
absl::string_view FaultName(Fault fault);

struct Limits {
  uint32_t max_islands = 5;
  uint32_t max_fragments = 3;
  uint64_t max_rounds = 12;
  absl::Duration max_faulty_time = absl::Minutes(2);
  // Bits 1 << Fault of what must not happen.
  uint32_t without = 0;
};

struct Scenario {
  uint32_t islands = 1;
  // Of the fragments' plan and config: what the coordinator is made with.
  v1::RunConfig config;
  v1::FragmentPlan plan;
  // Of each island: how long an inner step takes, and its tokens.
  std::vector<absl::Duration> step_time;
  std::vector<uint64_t> tokens_per_step;
  // After this, nothing fails any more and the run must finish.
  absl::Duration faulty_time;
  // Bits 1 << Fault.
  uint32_t faults = 0;

  bool Has(Fault fault) const { return (faults >> fault & 1) != 0; }
  // For people.
  std::string Describe() const;
};

Scenario DrawScenario(uint64_t seed, const Limits& limits);

// Names of the run and of its islands.
inline constexpr char kRunId[] = "run-1";
std::string IslandName(uint32_t island);

// Values of every fragment; see tests/simulation/contents.h.
inline constexpr uint64_t kFragmentSize = 24;

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_SCENARIO_H_
