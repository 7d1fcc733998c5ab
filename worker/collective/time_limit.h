// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A time limit for something that others do. A process that was stopped, by a
// signal or with its machine, may find all deadlines over when it continues. It
// must not blame others for that: it has not looked at what they did, and they
// may have been stopped, too. So the limit counts little of such a stop.
//
//   TimeLimit limit(timeout, &now);
//   do {
//     if (WaitUpTo(limit.Slice())) return absl::OkStatus();
//   } while (!limit.IsOver());
#ifndef WORKER_COLLECTIVE_TIME_LIMIT_H_
#define WORKER_COLLECTIVE_TIME_LIMIT_H_

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Not thread-safe.
class TimeLimit {
 public:
  // A waiting thread looks at the limit at least this often.
  static constexpr absl::Duration kSlice = absl::Seconds(1);
  // At most this much of the time between two looks counts.
  static constexpr absl::Duration kMostCounted = absl::Milliseconds(1500);

  // `now` outlives the object.
  TimeLimit(absl::Duration limit, const Clock* now)
      : now_(now), left_(limit), seen_at_((*now)()) {}

  // Returns the time that is left, at least zero.
  absl::Duration Left() {
    const absl::Time now = (*now_)();
    left_ -= std::min(now - seen_at_, kMostCounted);
    seen_at_ = now;
    left_ = std::max(left_, absl::ZeroDuration());
    return left_;
  }
  bool IsOver() { return Left() == absl::ZeroDuration(); }
  // Returns how long to wait before the next look.
  absl::Duration Slice() { return std::min(Left(), kSlice); }

 private:
  const Clock* now_;
  absl::Duration left_;
  absl::Time seen_at_;
};

// Waits, within `limit`, until `condition` holds. Returns whether it does.
inline bool AwaitWithin(TimeLimit& limit, const absl::Condition& condition,
                        absl::Mutex& mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  while (!mu.AwaitWithTimeout(condition, limit.Slice())) {
    if (limit.IsOver()) return false;
  }
  return true;
}

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TIME_LIMIT_H_
