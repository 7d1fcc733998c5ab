// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Clean ends of daemons: SIGTERM, SIGINT and SIGUSR1, which batch schedulers
// send ahead of time, as something to wait for.
#ifndef COMMON_TERMINATION_H_
#define COMMON_TERMINATION_H_

#include "absl/time/time.h"

namespace causeway {

// Blocks them in this thread and all it starts from now on; to be called first
// in main. Also ignores SIGPIPE.
void BlockTerminationSignals();

// Waits up to `timeout` for one of them. Returns its number, or 0.
int AwaitTerminationSignal(absl::Duration timeout);

}  // namespace causeway

#endif  // COMMON_TERMINATION_H_
