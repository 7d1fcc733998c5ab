// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares a run with its prediction, as text for people and as JSON for
// programs (units as in cli/plan/plan_report.h). Pure.
#ifndef CLI_PLAN_RUN_COMPARISON_H_
#define CLI_PLAN_RUN_COMPARISON_H_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/coordinator_client.h"
#include "cli/plan/run_plan.h"
#include "nlohmann/json_fwd.hpp"

namespace causeway {

struct MeasuredIsland {
  std::string name;
  // The time since the newest incarnation could begin to train, and how much of
  // it the island stood still for synchronization.
  double seconds = 0;
  double wait_seconds = 0;
  double steps = 0;
  double up_bytes = 0;
  double down_bytes = 0;
  double memory_bytes = 0;
  // The measured rates of transfers; kUnlimited if there were none.
  LinkRates link;
  double round_trip_seconds = 0;

  double utilization() const { return 1 - wait_seconds / seconds; }
  double step_seconds() const { return (seconds - wait_seconds) / steps; }
};

struct MeasuredRun {
  // The islands that have trained, in order of name.
  std::vector<MeasuredIsland> islands;
  double coordinator_bytes = 0;
  // Values per second of outer steps; kUnlimited before the first step.
  double merge_rate = kUnlimited;
};

// Reads the output of StatusJson (cli/status_report.h). Skips fields that this
// version does not know.
//   INVALID_ARGUMENT  `text` is not such output; the message says where.
absl::StatusOr<StatusSnapshot> ParseStatusJson(absl::string_view text);

// Measures a run. `now` is the time of the status; without it, and for islands
// that have left, time ends with the newest commit. An island can begin to
// train when it and membership.min_islands islands have joined.
//   FAILED_PRECONDITION  no island has trained long enough to tell.
absl::StatusOr<MeasuredRun> Measure(const StatusSnapshot& status,
                                    std::optional<absl::Time> now);

// Returns the run of `status` with the islands' measured step times, links and
// round trips, and the coordinator's measured outer steps. A link's rate is
// that of its transfers, including their round trips: if transfers are short,
// the link carries more. `checkpoint` is as for NewRunLayout, whose errors are
// returned.
absl::StatusOr<RunAssumptions> AssumptionsOf(const StatusSnapshot& status,
                                             const MeasuredRun& measured,
                                             const std::string& checkpoint);

// `prediction` is for the islands of `measured`, in their order.
void PrintComparison(const RunAssumptions& assumptions,
                     const RunPrediction& prediction,
                     const MeasuredRun& measured, std::ostream& out);
nlohmann::json ComparisonJson(const RunAssumptions& assumptions,
                              const RunPrediction& prediction,
                              const MeasuredRun& measured);

}  // namespace causeway

#endif  // CLI_PLAN_RUN_COMPARISON_H_
