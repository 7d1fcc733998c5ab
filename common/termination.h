// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Clean ends of daemons: lets them wait for SIGTERM, SIGINT and SIGUSR1. Batch
// schedulers send SIGUSR1 ahead of time.
#ifndef COMMON_TERMINATION_H_
#define COMMON_TERMINATION_H_

#include "absl/time/time.h"

namespace causeway {

// Blocks the signals in this thread and all threads that it starts from now on;
// `main` must call it first. Also ignores SIGPIPE.
void BlockTerminationSignals();

// Waits up to `timeout` for one of the signals. Returns its number, or 0.
int AwaitTerminationSignal(absl::Duration timeout);

}  // namespace causeway

#endif  // COMMON_TERMINATION_H_
