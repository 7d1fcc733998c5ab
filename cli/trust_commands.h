// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands about a coordinator's own authority (proto/trust.proto): token,
// certificate and enrol.
#ifndef CLI_TRUST_COMMANDS_H_
#define CLI_TRUST_COMMANDS_H_

#include <vector>

#include "cli/command_line.h"
#include "common/clock.h"

namespace causeway {

std::vector<Command> TrustCommands(const Clock& now);

}  // namespace causeway

#endif  // CLI_TRUST_COMMANDS_H_
