// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands of the `causeway` program. Each is defined in the file of its
// name or of its group, such as cli/status_commands.cc.
#ifndef CLI_COMMANDS_H_
#define CLI_COMMANDS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "cli/command_line.h"
#include "cli/progress.h"
#include "common/clock.h"

namespace causeway {

struct StatusEnvironment {
  Clock now;
  // Waits; false ends a repeating command.
  std::function<bool(absl::Duration)> sleep;
  // The time zone in which events are shown.
  absl::TimeZone time_zone;
  // If true, stdout is a terminal with a screen, where `watch` draws.
  bool terminal = false;
};
// Show a running coordinator: status, watch, islands, fragments, events.
std::vector<Command> StatusCommands(StatusEnvironment environment);

// Steer a run (proto/control.proto): pause, resume, drain, evict, quarantine
// and data; and promote (proto/replication.proto).
std::vector<Command> ControlCommands(const Clock& now);

// Manage a coordinator's own certificate authority (proto/trust.proto): token,
// certificate and enrol.
std::vector<Command> TrustCommands(const Clock& now);

// Writes the configuration of a run that begins with a model of the Hugging
// Face libraries.
Command ImportCommand();

// Writes a run's model as a directory that the Hugging Face libraries load. The
// tensors go from the coordinator's files to the new ones piece by piece, so
// that the command needs little memory, whatever the size of the model.
Command ExportCommand(ProgressEnvironment progress);

// Repeats the recorded merges of a run on one thread and says whether they give
// the committed bits (server/replay.h). Fails with DATA_LOSS, naming fragments
// and versions, if something differs.
Command ReplayCommand(ProgressEnvironment progress);

}  // namespace causeway

#endif  // CLI_COMMANDS_H_
