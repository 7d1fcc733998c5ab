// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_OS_THREAD_PRIORITY_H_
#define COMMON_OS_THREAD_PRIORITY_H_

#include "absl/status/status.h"

namespace causeway {

// Lets the calling thread, and those that it starts from now on, give way to
// others when processors are scarce: raises the nice value by 10, which leaves
// about a tenth of an ordinary thread's weight, and sets SCHED_BATCH, so that
// it does not interrupt others when it wakes up. It still gets every idle
// processor. Only privileged threads can undo this.
//
// Linux requires no permission for this. If a sandbox still forbids the calls,
// the error says so and the thread is unchanged.
absl::Status LowerThreadPriority();

}  // namespace causeway

#endif  // COMMON_OS_THREAD_PRIORITY_H_
