// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line of `causeway prepare`; cli/prepare.h does the work.
#ifndef CLI_PREPARE_COMMAND_H_
#define CLI_PREPARE_COMMAND_H_

#include <functional>

#include "absl/time/time.h"
#include "cli/command_line.h"

namespace causeway {

// Returns the command. `terminal` says whether Invocation::err is a terminal.
Command PrepareCommand(std::function<absl::Time()> now, bool terminal);

}  // namespace causeway

#endif  // CLI_PREPARE_COMMAND_H_
