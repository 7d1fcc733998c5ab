// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which settings of synchronization let islands train a wanted share of their
// time. Pure.
#ifndef CLI_PLAN_SETTINGS_SEARCH_H_
#define CLI_PLAN_SETTINGS_SEARCH_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/run_plan.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct Settings {
  v1::SynchronizationConfig synchronization;
  RunPrediction prediction;
};

struct FoundSettings {
  // By H, then tau.
  std::vector<Settings> reaching;
  // Whichever of those tried has the highest utilization.
  Settings closest;
};

// Tries H of 1-2-5 steps from 1 to 10000; one fragment, and three layers to a
// fragment; tau of 0, 1, 2, 5, 10 and 20; and FP32, BF16, INT8 and E3M0 both
// ways. Everything else is as `assumptions` say, uplink_bits and downlink_bits
// apart: the formats decide.
//
// `reaching` has those that reach `utilization` and that no other one beats:
// none has an H and a tau that are no larger and a format of no fewer bits,
// each of which costs learning.
//   INVALID_ARGUMENT  utilization is not above 0 and at most 1, or as
//                     PredictRun.
absl::StatusOr<FoundSettings> FindSettings(const RunAssumptions& assumptions,
                                           double utilization);

}  // namespace causeway

#endif  // CLI_PLAN_SETTINGS_SEARCH_H_
