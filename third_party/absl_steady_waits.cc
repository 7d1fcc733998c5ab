// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes Abseil's waits last as long as they say, whatever happens to the
// system's time. Abseil 20220623 waits until a time of the wall clock, even if
// it was given a duration. If the wall clock is put back by an hour meanwhile,
// the wait lasts an hour longer: no heartbeat is sent, no lease ends, and gRPC,
// which waits by Abseil, keeps no deadline. This file replaces Abseil's own
// function, which is a weak symbol for that purpose, in programs and in
// libcauseway.so, which exports it.
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "absl/base/config.h"
#include "absl/base/internal/raw_logging.h"
#include "absl/base/internal/thread_identity.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/futex.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"

namespace {

using absl::synchronization_internal::Futex;
using absl::synchronization_internal::GetOrCreateCurrentThreadIdentity;
using absl::synchronization_internal::KernelTimeout;
using absl::synchronization_internal::Waiter;

constexpr int64_t kNanosPerSecond = 1000 * 1000 * 1000;

// A thread's semaphore is the futex that its Waiter consists of.
static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX);
static_assert(sizeof(Waiter) == sizeof(std::atomic<int32_t>));

int64_t ToNanos(const timespec& time) {
  return time.tv_sec * kNanosPerSecond + time.tv_nsec;
}

int64_t Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return ToNanos(now);
}

// Returns the time of the monotonic clock that corresponds to `wall` of the
// wall clock. A thread that wakes up early waits again with the same `wall`,
// whose first result is kept.
timespec MonotonicDeadline(int64_t wall) {
  thread_local int64_t last_wall = 0;
  thread_local int64_t deadline = 0;
  if (wall != last_wall) {
    last_wall = wall;
    deadline = Now(CLOCK_MONOTONIC);
    const int64_t left = wall - Now(CLOCK_REALTIME);
    if (left > 0 && __builtin_add_overflow(deadline, left, &deadline)) {
      deadline = INT64_MAX;
    }
  }
  return {.tv_sec = deadline / kNanosPerSecond,
          .tv_nsec = deadline % kNanosPerSecond};
}

}  // namespace

// Waits until the calling thread's semaphore is positive, decrements it and
// returns true. Returns false if that has not happened by `timeout`.
extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    KernelTimeout timeout) {
  absl::base_internal::ThreadIdentity& self =
      *GetOrCreateCurrentThreadIdentity();
  if (!timeout.has_timeout()) return Waiter::GetWaiter(&self)->Wait(timeout);
  auto& semaphore =
      *reinterpret_cast<std::atomic<int32_t>*>(self.waiter_state.data);
  const timespec deadline =
      MonotonicDeadline(ToNanos(timeout.MakeAbsTimespec()));
  while (true) {
    int32_t value = semaphore.load(std::memory_order_relaxed);
    while (value != 0) {
      if (semaphore.compare_exchange_weak(value, value - 1,
                                          std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
        return true;
      }
    }
    const int error = Futex::WaitBitsetAbsoluteTimeout(
        &semaphore, 0, FUTEX_BITSET_MATCH_ANY, &deadline);
    if (error == -ETIMEDOUT) return false;
    ABSL_RAW_CHECK(error == 0 || error == -EINTR || error == -EWOULDBLOCK,
                   "a futex cannot be waited for");
  }
}
