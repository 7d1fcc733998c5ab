// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_THREAD_PRIORITY_H_
#define COMMON_THREAD_PRIORITY_H_

#include "absl/status/status.h"

namespace causeway {

// Lets the calling thread, and those that it starts from now on, give way to
// others when processors are scarce: a nice value higher by 10, which is about
// a tenth of an ordinary thread's weight, and SCHED_BATCH, so that it does not
// interrupt others when it wakes up. It still gets every idle processor. There
// is no way back without privileges.
//
// Linux requires no permission for this. Where a sandbox forbids the calls all
// the same, the error says so and the thread stays as it was.
absl::Status LowerThreadPriority();

}  // namespace causeway

#endif  // COMMON_THREAD_PRIORITY_H_
