// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands that look at a running coordinator: status, watch, islands,
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
  // Waits; false ends a command that repeats itself.
  std::function<bool(absl::Duration)> sleep;
  // The time zone in which events are shown.
  absl::TimeZone time_zone;
  // Whether results go to a terminal, where `watch` redraws the screen.
  bool terminal = false;
};

std::vector<Command> StatusCommands(StatusEnvironment environment);

// The loop of `watch`: shows what `fetch` returns every `interval`. When it
// fails, the last state stays on the screen under a line that says so, and the
// loop goes on. Returns when environment.sleep says so.
void Watch(const std::function<absl::StatusOr<StatusSnapshot>()>& fetch,
           absl::Duration interval, const StatusEnvironment& environment,
           std::ostream& out);

}  // namespace causeway

#endif  // CLI_STATUS_COMMANDS_H_
