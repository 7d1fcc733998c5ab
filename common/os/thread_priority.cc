// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace causeway {
namespace {

constexpr int kStep = 10;
constexpr int kHighestNice = 19;

}  // namespace

absl::Status LowerThreadPriority() {
  // 0 is the calling thread: Linux keeps nice values per thread.
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (errno != 0) return absl::ErrnoToStatus(errno, "getpriority");
  if (setpriority(PRIO_PROCESS, 0, std::min(nice + kStep, kHighestNice)) != 0) {
    return absl::ErrnoToStatus(errno, "cannot raise the thread's nice value");
  }
  const sched_param parameters = {};
  if (sched_setscheduler(0, SCHED_BATCH, &parameters) != 0) {
    return absl::ErrnoToStatus(errno, "cannot schedule the thread as a batch");
  }
  return absl::OkStatus();
}

}  // namespace causeway
