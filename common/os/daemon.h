// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts and ends every daemon of Causeway. Daemons can wait for SIGTERM,
// SIGINT, SIGHUP and SIGUSR1, which batch schedulers send ahead of time.
#ifndef COMMON_OS_DAEMON_H_
#define COMMON_OS_DAEMON_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

// Blocks the signals as below, sets up logging to stderr, --version and --help,
// and parses the flags. `main` must call it first. --help prints `usage` before
// the flags of `main_file`. Ends the process as after UsageError() if a flag is
// unknown or has an invalid value, or an argument is not a flag.
void StartDaemon(int argc, char** argv, absl::string_view usage,
                 absl::string_view main_file);

// Prints the problem with the command line to stderr. Returns the exit code, 2.
int UsageError(absl::string_view program, absl::string_view problem);

// Prints to stderr why `program` failed, if it did. Returns the exit code, 0 or
// 1.
int ExitCode(absl::string_view program, const absl::Status& status);

// Blocks the signals in this thread and all threads that it starts from now on;
// `main` must call it first. Also ignores SIGPIPE.
void BlockTerminationSignals();

// Waits up to `timeout` for one of the signals. Returns its number, or 0.
int AwaitTerminationSignal(absl::Duration timeout);

}  // namespace causeway

#endif  // COMMON_OS_DAEMON_H_
