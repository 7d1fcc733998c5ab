// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_THREAD_PRIORITY_H_
#define COMMON_THREAD_PRIORITY_H_

#include "absl/status/status.h"

namespace causeway {

// Lets the calling thread, and those that it starts from now on, step back
// behind others when processors are scarce: a nice value higher by 10, about a
// tenth of the weight of an ordinary thread, and SCHED_BATCH, so that it does
// not interrupt others when it wakes up. It still gets every idle processor.
// There is no way back without privileges.
//
// Linux asks for no permission to lower a priority. Where a sandbox forbids the
// calls all the same, the error says so and the thread stays as it was.
absl::Status LowerThreadPriority();

}  // namespace causeway

#endif  // COMMON_THREAD_PRIORITY_H_
