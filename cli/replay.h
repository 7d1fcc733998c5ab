// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway replay`: makes the recorded merges of a run again on one thread and
// says whether they come to the committed bits (server/replay.h).
#ifndef CLI_REPLAY_H_
#define CLI_REPLAY_H_

#include "cli/command_line.h"
#include "cli/progress.h"

namespace causeway {

// Returns the command, which fails with DATA_LOSS, naming fragments and
// versions, if something differs. Progress goes to Invocation::err.
Command ReplayCommand(ProgressEnvironment progress);

}  // namespace causeway

#endif  // CLI_REPLAY_H_
