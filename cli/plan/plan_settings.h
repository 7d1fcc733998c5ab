// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the planner's assumptions from a RunConfig and flags.
#ifndef CLI_PLAN_PLAN_SETTINGS_H_
#define CLI_PLAN_PLAN_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command_line.h"
#include "cli/plan/run_plan.h"

namespace causeway {

// The values of the flags. A list has one word for all islands, or one for
// each.
struct PlanSettings {
  // A RunConfig in text format. Without it the model has `parameters`.
  std::string config;
  // The checkpoint with the run's tensors, where the configuration lists none.
  std::string initial_parameters;
  double parameters = 0;
  double outside_layers = 0;
  uint64_t layers = 0;
  // The number of islands; 0 for membership.min_islands, or as many as the
  // longest list has words.
  uint64_t islands = 0;
  std::vector<std::string> step_seconds;
  // Rates in Mbit/s; "inf" for no bound. Without down_mbit, downlinks are like
  // uplinks.
  std::vector<std::string> up_mbit;
  std::vector<std::string> down_mbit;
  std::vector<std::string> rtt_ms;
  double coordinator_in_mbit = kUnlimited;
  double coordinator_out_mbit = kUnlimited;
  // Millions of values per second; 0 means 100.
  double merge_mvalues = 0;
  double uplink_bits = 0;
  double downlink_bits = 0;
  // See Simulation.
  bool slow_start_after_idle = true;
  uint64_t rounds = 0;
  // Fields of SynchronizationConfig that replace the configuration's, in text
  // format; empty ones are left alone.
  std::map<std::string, std::string> synchronization;
};

// Adds the flags that fill `settings`, which must outlive `flags`.
void AddSettingsFlags(FlagSet& flags, PlanSettings& settings);

// Makes the assumptions. INVALID_ARGUMENT names the missing or invalid flag.
// Also returns errors of LoadRunConfig.
absl::StatusOr<RunAssumptions> MakeAssumptions(const PlanSettings& settings);

}  // namespace causeway

#endif  // CLI_PLAN_PLAN_SETTINGS_H_
