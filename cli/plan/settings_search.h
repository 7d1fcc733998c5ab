// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds settings of synchronization with which islands train a given share of
// their time. Pure.
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
  // Sorted by H, then tau.
  std::vector<Settings> reaching;
  // The tried settings with the highest utilization.
  Settings closest;
};

// Tries H from 1 to 10000 in steps of 1-2-5; one fragment, and three layers to
// a fragment; tau of 0, 1, 2, 5, 10 and 20; and FP32, BF16, INT8, INT4 and ECQ
// both ways. Everything else is as in `assumptions`, except uplink_bits and
// downlink_bits, which the formats decide.
//
// `reaching` has the settings that reach `utilization` and that no other
// setting beats. A setting beats another if its H and tau are no larger and its
// format has no fewer bits, because each of these costs learning.
//   INVALID_ARGUMENT  utilization is not above 0 and at most 1; errors of
//                     PredictRun.
absl::StatusOr<FoundSettings> FindSettings(const RunAssumptions& assumptions,
                                           double utilization);

}  // namespace causeway

#endif  // CLI_PLAN_SETTINGS_SEARCH_H_
