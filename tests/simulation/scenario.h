// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The contents of a simulated history: the run's configuration, the islands,
// and the faults that may happen. They are drawn from the history's seed,
// within limits that a person (or the search for a shorter failing history)
// sets.
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
  // An island's process is stopped for a while.
  kIslandStall,
  // An island leaves the run before its end, and may come back.
  kIslandLeave,
  // Islands come after the run has begun.
  kLateIsland,
  // The coordinator is killed, and started again.
  kCoordinatorKill,
  // Writes take seconds.
  kSlowDisk,
  // Writes fail, and nothing is written.
  kFailedWrite,
  // A write fails, and only later it shows whether it took place.
  kUnknownWrite,
  // An operator pauses the run for a while.
  kPause,
  // An operator evicts an island.
  kEvict,
  // Clocks run at rates that differ by up to a tenth.
  kClockSkew,
  // Islands keep checkpoints, from which the next process continues.
  kCheckpoint,
  // An operator drains an island.
  kDrain,
  // Contributions are outliers or not finite, or an outer step would be; an
  // operator decides on them.
  kOutlier,
  // The first island trains and heartbeats, but never contributes, not even
  // when nothing fails any more. The others are enough for the quorum.
  kSilentIsland,
  // Islands take up to a minute before they are ready to train.
  kSlowLoad,
  // The newest snapshot of a fragment cannot be read when the coordinator
  // starts.
  kDamagedSnapshot,
  // The number of kinds.
  kFaults,
};
absl::string_view FaultName(Fault fault);

struct Limits {
  uint32_t max_islands = 5;
  uint32_t max_fragments = 3;
  uint64_t max_rounds = 12;
  absl::Duration max_faulty_time = absl::Minutes(2);
  // A bit 1 << Fault for each fault that must not happen.
  uint32_t without = 0;
};

struct Scenario {
  uint32_t islands = 1;
  // The configuration and plan of the coordinator.
  v1::RunConfig config;
  v1::FragmentPlan plan;
  // Each island's tau, its time of an inner step, and its tokens in one.
  std::vector<uint32_t> overlap_steps;
  std::vector<absl::Duration> step_time;
  std::vector<uint64_t> tokens_per_step;
  // The time after which nothing fails any more and the run must finish.
  absl::Duration faulty_time;
  // A bit 1 << Fault for each fault that may happen.
  uint32_t faults = 0;

  bool Has(Fault fault) const { return (faults >> fault & 1) != 0; }
  bool IsSilent(uint32_t island) const {
    return island == 0 && islands > 1 && Has(kSilentIsland);
  }
  // Returns whether all islands are equally fast, and each contributes on its
  // own account. A grace window covers the delay of islands' news of each
  // other.
  bool IsEven() const;
  // Describes the scenario for people.
  std::string Describe() const;
};

Scenario DrawScenario(uint64_t seed, const Limits& limits);

// The names of the run and of its islands.
inline constexpr char kRunId[] = "run-1";
std::string IslandName(uint32_t island);

// The number of values in every fragment; see tests/simulation/contents.h.
inline constexpr uint64_t kFragmentSize = 24;

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_SCENARIO_H_
