// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway replay`: repeats the recorded merges of a run on one thread and
// says whether they give the committed bits (server/replay.h).
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
