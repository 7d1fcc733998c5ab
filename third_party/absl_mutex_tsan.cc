// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells ThreadSanitizer about absl::Mutex. The system's Abseil is not built for
// it, so without this file every access that a Mutex guards looks like a race.
// Linked by --config=tsan only, where the linker (--wrap) sends our calls of
// Mutex through here.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

// Mangled names of the functions in Debian 12's inline namespace.
#define CAUSEWAY_LOCK _ZN4absl7debian35Mutex4LockEv
#define CAUSEWAY_LOCK_WHEN _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE
#define CAUSEWAY_UNLOCK _ZN4absl7debian35Mutex6UnlockEv
#define CAUSEWAY_READER_LOCK _ZN4absl7debian35Mutex10ReaderLockEv
#define CAUSEWAY_READER_UNLOCK _ZN4absl7debian35Mutex12ReaderUnlockEv
#define CAUSEWAY_AWAIT _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
#define CAUSEWAY_AWAIT_WITH_TIMEOUT \
  _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
#define CAUSEWAY_JOIN_(a, b) a##b
#define CAUSEWAY_JOIN(a, b) CAUSEWAY_JOIN_(a, b)
#define CAUSEWAY_REAL(name) CAUSEWAY_JOIN(__real_, name)
#define CAUSEWAY_WRAP(name) CAUSEWAY_JOIN(__wrap_, name)

namespace {

// For ThreadSanitizer, a wait unlocks the mutex and locks it again. It does not
// look at what Abseil does in between, such as calling conditions, because
// Abseil holds the mutex in ways that cannot be seen from here.
void BeginWait(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
}
void EndWait(absl::Mutex* mutex) { __tsan_mutex_post_lock(mutex, 0, 0); }

}  // namespace

extern "C" {

void CAUSEWAY_REAL(CAUSEWAY_LOCK)(absl::Mutex* mutex);
void CAUSEWAY_WRAP(CAUSEWAY_LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, 0);
  CAUSEWAY_REAL(CAUSEWAY_LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void CAUSEWAY_REAL(CAUSEWAY_LOCK_WHEN)(absl::Mutex* mutex,
                                       const absl::Condition& condition);
void CAUSEWAY_WRAP(CAUSEWAY_LOCK_WHEN)(absl::Mutex* mutex,
                                       const absl::Condition& condition) {
  __tsan_mutex_pre_lock(mutex, 0);
  CAUSEWAY_REAL(CAUSEWAY_LOCK_WHEN)(mutex, condition);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

void CAUSEWAY_REAL(CAUSEWAY_UNLOCK)(absl::Mutex* mutex);
void CAUSEWAY_WRAP(CAUSEWAY_UNLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, 0);
  CAUSEWAY_REAL(CAUSEWAY_UNLOCK)(mutex);
  __tsan_mutex_post_unlock(mutex, 0);
}

void CAUSEWAY_REAL(CAUSEWAY_READER_LOCK)(absl::Mutex* mutex);
void CAUSEWAY_WRAP(CAUSEWAY_READER_LOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_read_lock);
  CAUSEWAY_REAL(CAUSEWAY_READER_LOCK)(mutex);
  __tsan_mutex_post_lock(mutex, __tsan_mutex_read_lock, 0);
}

void CAUSEWAY_REAL(CAUSEWAY_READER_UNLOCK)(absl::Mutex* mutex);
void CAUSEWAY_WRAP(CAUSEWAY_READER_UNLOCK)(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, __tsan_mutex_read_lock);
  CAUSEWAY_REAL(CAUSEWAY_READER_UNLOCK)(mutex);
  __tsan_mutex_post_unlock(mutex, __tsan_mutex_read_lock);
}

void CAUSEWAY_REAL(CAUSEWAY_AWAIT)(absl::Mutex* mutex,
                                   const absl::Condition& condition);
void CAUSEWAY_WRAP(CAUSEWAY_AWAIT)(absl::Mutex* mutex,
                                   const absl::Condition& condition) {
  BeginWait(mutex);
  CAUSEWAY_REAL(CAUSEWAY_AWAIT)(mutex, condition);
  EndWait(mutex);
}

bool CAUSEWAY_REAL(CAUSEWAY_AWAIT_WITH_TIMEOUT)(
    absl::Mutex* mutex, const absl::Condition& condition,
    absl::Duration timeout);
bool CAUSEWAY_WRAP(CAUSEWAY_AWAIT_WITH_TIMEOUT)(
    absl::Mutex* mutex, const absl::Condition& condition,
    absl::Duration timeout) {
  BeginWait(mutex);
  const bool holds =
      CAUSEWAY_REAL(CAUSEWAY_AWAIT_WITH_TIMEOUT)(mutex, condition, timeout);
  EndWait(mutex);
  return holds;
}

}  // extern "C"
