// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run's status says about what the planner predicts. Pure.
#ifndef CLI_PLAN_RUN_COMPARISON_H_
#define CLI_PLAN_RUN_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/plan/run_plan.h"
#include "cli/status_client.h"

namespace causeway {

struct MeasuredIsland {
  std::string name;
  // Of its newest incarnation: time since it could begin to train, of which it
  // stood still for synchronization.
  double seconds = 0;
  double wait_seconds = 0;
  double steps = 0;
  double up_bytes = 0;
  double down_bytes = 0;
  double memory_bytes = 0;
  // What its transfers reached; kUnlimited if it has made none.
  LinkRates link;
  double round_trip_seconds = 0;

  double utilization() const { return 1 - wait_seconds / seconds; }
  double step_seconds() const { return (seconds - wait_seconds) / steps; }
};

struct MeasuredRun {
  // In order of name; those that have trained.
  std::vector<MeasuredIsland> islands;
  double coordinator_bytes = 0;
  // Values per second of outer steps; kUnlimited before the first.
  double merge_rate = kUnlimited;
};

// Reads what StatusJson (cli/status_report.h) wrote. Fields that this version
// does not know are skipped.
//   INVALID_ARGUMENT  it is no such JSON; says where.
absl::StatusOr<StatusSnapshot> ParseStatusJson(absl::string_view json);

// `now` is when the status was asked for; without it, and for islands that have
// left, time ends with the newest commit. An island can begin to train when it
// has joined and membership.min_islands have.
//   FAILED_PRECONDITION  no island has trained long enough to tell.
absl::StatusOr<MeasuredRun> Measure(const StatusSnapshot& status,
                                    std::optional<absl::Time> now);

// The run that `status` is about with the islands' measured step times, links
// and round trips and the coordinator's measured outer steps. A link's rate is
// what its transfers reached, their own round trips included: less than it
// carries where transfers are short.
RunAssumptions AssumptionsOf(const StatusSnapshot& status,
                             const MeasuredRun& measured);

}  // namespace causeway

#endif  // CLI_PLAN_RUN_COMPARISON_H_
