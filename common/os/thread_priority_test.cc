// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(ThreadPriorityTest, LowersTheCallingThreadOnly) {
  const int before = getpriority(PRIO_PROCESS, 0);
  const int policy = sched_getscheduler(0);
  std::thread([before] {
    EXPECT_OK(LowerThreadPriority());
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), std::min(before + 10, 19));
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    // Lowering the lowest priority is no error.
    EXPECT_OK(LowerThreadPriority());
    EXPECT_OK(LowerThreadPriority());
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 19);
  }).join();
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
  EXPECT_EQ(sched_getscheduler(0), policy);
}

}  // namespace
}  // namespace causeway
