// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway plan`: predicts a run, finds settings for it, and compares it with
// measurements.
#ifndef CLI_PLAN_PLAN_COMMAND_H_
#define CLI_PLAN_PLAN_COMMAND_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/command_line.h"
#include "cli/coordinator_client.h"
#include "common/clock.h"

namespace causeway {

struct PlanEnvironment {
  // Asks a coordinator for its status, including the islands that have left.
  std::function<absl::StatusOr<StatusSnapshot>(const ConnectionFlags&)> fetch;
  Clock now;
};

Command PlanCommand(PlanEnvironment environment);

}  // namespace causeway

#endif  // CLI_PLAN_PLAN_COMMAND_H_
