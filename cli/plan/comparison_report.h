// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Sets a prediction against a run, as text for people and as JSON for programs
// (units as in cli/plan/plan_report.h). Pure.
#ifndef CLI_PLAN_COMPARISON_REPORT_H_
#define CLI_PLAN_COMPARISON_REPORT_H_

#include <ostream>

#include "cli/plan/run_comparison.h"
#include "cli/plan/run_plan.h"
#include "nlohmann/json_fwd.hpp"

namespace causeway {

// `prediction` is for the islands of `measured`, in their order.
void PrintComparison(const RunAssumptions& assumptions,
                     const RunPrediction& prediction,
                     const MeasuredRun& measured, std::ostream& out);
nlohmann::json ComparisonJson(const RunAssumptions& assumptions,
                              const RunPrediction& prediction,
                              const MeasuredRun& measured);

}  // namespace causeway

#endif  // CLI_PLAN_COMPARISON_REPORT_H_
