// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads an island's speed from its log. A worker that is started with
// --log_seconds=0 logs each inner step; unlike heartbeats, these lines tell to
// the microsecond when a step ended.
#ifndef TESTS_WAN_PROGRESS_LOG_H_
#define TESTS_WAN_PROGRESS_LOG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

// The end of one inner step.
struct LoggedStep {
  uint64_t step = 0;
  // The time of the island's clock in an unknown zone: only differences are
  // meaningful.
  absl::Time time;
  // The time that training had waited for synchronization before this step.
  absl::Duration waited;
};

// Returns the steps in a worker's log, in its order. Skips lines that are not
// about a step.
std::vector<LoggedStep> ParseProgressLog(absl::string_view log);

struct IslandSpeed {
  // The share of the time that training did not stand still.
  double training_share = 0;
  double steps_per_second = 0;
};

// Returns the speed from the end of the first round of `round_steps` steps to
// the end of the last whole one, that is, over as many synchronizations as
// rounds.
//   FAILED_PRECONDITION  the log has less than two rounds.
absl::StatusOr<IslandSpeed> MeasureSpeed(const std::vector<LoggedStep>& steps,
                                         uint64_t round_steps);

}  // namespace causeway

#endif  // TESTS_WAN_PROGRESS_LOG_H_
