// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands that steer a run (proto/control.proto): pause, resume, drain,
// evict and quarantine; and promote (proto/replication.proto).
#ifndef CLI_CONTROL_COMMANDS_H_
#define CLI_CONTROL_COMMANDS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "cli/command_line.h"

namespace causeway {

std::vector<Command> ControlCommands(std::function<absl::Time()> now);

}  // namespace causeway

#endif  // CLI_CONTROL_COMMANDS_H_
