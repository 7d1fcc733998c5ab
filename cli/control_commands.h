// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands that steer a run (proto/control.proto): pause, resume, drain,
// evict and quarantine.
#ifndef CLI_CONTROL_COMMANDS_H_
#define CLI_CONTROL_COMMANDS_H_

#include <functional>
#include <ostream>
#include <vector>

#include "absl/time/time.h"
#include "cli/command_line.h"
#include "proto/control.pb.h"

namespace causeway {

std::vector<Command> ControlCommands(std::function<absl::Time()> now);

// Prints the table of `quarantine list`.
void PrintQuarantine(const v1::ListQuarantineResponse& quarantine,
                     absl::Time now, std::ostream& out);

}  // namespace causeway

#endif  // CLI_CONTROL_COMMANDS_H_
