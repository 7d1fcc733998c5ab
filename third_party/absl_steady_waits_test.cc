// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// This program's wall clock is put forward and back; the system's is not. A
// wait by the system's wall clock therefore ends far too late or too early.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace {
// The number of seconds by which the wall clock is ahead of the truth.
std::atomic<int64_t> wall_offset = 0;
}  // namespace

// These replace the C library's functions.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += wall_offset;
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  const int result = static_cast<int>(syscall(SYS_gettimeofday, time, nullptr));
  time->tv_sec += wall_offset;
  return result;
}

namespace causeway {
namespace {

using absl::synchronization_internal::KernelTimeout;
using std::chrono::steady_clock;

constexpr absl::Duration kShort = absl::Milliseconds(200);
// A wait of kShort ends within this time, even on the slowest machine.
constexpr std::chrono::seconds kPatience(20);

class SteadyWaitsTest : public testing::TestWithParam<int64_t> {
 protected:
  ~SteadyWaitsTest() override { wall_offset = 0; }

  // Expects that `wait`, on a thread of its own, lasts as long as kShort.
  // Otherwise calls `end`, which ends the wait.
  static void ExpectShort(const std::function<void()>& wait,
                          const std::function<void()>& end) {
    const steady_clock::time_point begin = steady_clock::now();
    std::future<steady_clock::time_point> waited =
        std::async(std::launch::async, [&] {
          wait();
          return steady_clock::now();
        });
    const bool ready = waited.wait_for(kPatience) == std::future_status::ready;
    EXPECT_TRUE(ready) << "the wait does not end";
    if (!ready) end();
    EXPECT_GE(absl::FromChrono(waited.get() - begin), kShort);
  }
};

INSTANTIATE_TEST_SUITE_P(Offsets, SteadyWaitsTest,
                         testing::Values(0, 3600, -3600, 10 * 365 * 86400));

TEST_P(SteadyWaitsTest, AWaitForAConditionLastsAsLongAsItSays) {
  wall_offset = GetParam();
  absl::Mutex mu;
  bool ended = false;
  ExpectShort(
      [&] {
        absl::MutexLock lock(&mu);
        mu.AwaitWithTimeout(absl::Condition(&ended), kShort);
      },
      [&] {
        absl::MutexLock lock(&mu);
        ended = true;
      });
}

// gRPC waits in this way.
TEST_P(SteadyWaitsTest, AWaitUntilATimeLastsUntilThen) {
  wall_offset = GetParam();
  absl::Mutex mu;
  absl::CondVar changed;
  bool ended = false;
  ExpectShort(
      [&] {
        const absl::Time deadline = absl::Now() + kShort;
        absl::MutexLock lock(&mu);
        while (!ended && !changed.WaitWithDeadline(&mu, deadline)) {
        }
      },
      [&] {
        absl::MutexLock lock(&mu);
        ended = true;
        changed.Signal();
      });
}

// A thread that wakes up too early waits again until the same time.
TEST_P(SteadyWaitsTest, AWaitThatBeginsAgainKeepsItsEnd) {
  std::atomic<absl::base_internal::ThreadIdentity*> waiting = nullptr;
  ExpectShort(
      [&] {
        const KernelTimeout timeout(absl::Now() + kShort);
        waiting =
            absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
        ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)(waiting);
        EXPECT_TRUE(
            ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(timeout));
        wall_offset = GetParam();
        ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(timeout);
      },
      [&] {
        ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)
        (waiting);
      });
}

TEST(SteadyWaitTest, ANotificationEndsAWait) {
  absl::Notification notification;
  std::future<bool> heard = std::async(std::launch::async, [&] {
    return notification.WaitForNotificationWithTimeout(absl::Hours(1));
  });
  notification.Notify();
  EXPECT_TRUE(heard.get());
}

TEST(SteadyWaitTest, WhatIsOverEndsAtOnce) {
  absl::Mutex mu;
  const bool never = false;
  absl::MutexLock lock(&mu);
  EXPECT_FALSE(
      mu.AwaitWithDeadline(absl::Condition(&never), absl::UnixEpoch()));
  EXPECT_FALSE(mu.AwaitWithTimeout(absl::Condition(&never), -absl::Seconds(1)));
}

}  // namespace
}  // namespace causeway
