// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands that show a running coordinator: status, watch, islands,
// fragments, events.
#ifndef CLI_STATUS_COMMANDS_H_
#define CLI_STATUS_COMMANDS_H_

#include <functional>
#include <ostream>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "cli/coordinator_client.h"

namespace causeway {

// The commands' environment.
struct StatusEnvironment {
  std::function<absl::Time()> now;
  // Waits; false ends a repeating command.
  std::function<bool(absl::Duration)> sleep;
  // The time zone in which events are shown.
  absl::TimeZone time_zone;
  // If true, stdout is a terminal with a screen, where `watch` draws.
  bool terminal = false;
};

std::vector<Command> StatusCommands(StatusEnvironment environment);

}  // namespace causeway

#endif  // CLI_STATUS_COMMANDS_H_
