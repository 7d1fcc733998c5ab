// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Prints the planner's results as text for people and as JSON for programs.
// Pure.
//
// In JSON, rates are bits per second, sizes bytes, times seconds; the rate of a
// link without bound is null.
#ifndef CLI_PLAN_PLAN_REPORT_H_
#define CLI_PLAN_PLAN_REPORT_H_

#include <ostream>
#include <vector>

#include "cli/plan/run_plan.h"
#include "cli/plan/settings_search.h"
#include "nlohmann/json_fwd.hpp"

namespace causeway {

// Prints the exchanges, their effect on training, the links' traffic, and
// memory.
void PrintPrediction(const RunAssumptions& assumptions,
                     const RunPrediction& prediction, std::ostream& out);
nlohmann::json PredictionJson(const RunAssumptions& assumptions,
                              const RunPrediction& prediction);

// Prints one row for each; if none reaches the utilization, the closest.
void PrintSettings(double utilization, const FoundSettings& found,
                   std::ostream& out);
nlohmann::json SettingsJson(double utilization, const FoundSettings& found);

}  // namespace causeway

#endif  // CLI_PLAN_PLAN_REPORT_H_
