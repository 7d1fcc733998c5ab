// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds the rate at which to pace a link's transfers from the speed of unpaced
// transfers. A paced transfer is never faster than its pace, so a rate measured
// on it could only fall.
//
//   RateFinder finder;
//   double pace = finder.Next();           // 0: the link is to be measured
//   ... a transfer at this pace ...
//   if (pace == 0) finder.Measured(bytes, duration);
#ifndef COMMON_TRANSPORT_RATE_FINDER_H_
#define COMMON_TRANSPORT_RATE_FINDER_H_

#include <algorithm>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace causeway {

// Finds the rate of one link. Thread-safe.
class RateFinder {
 public:
  // The share of the measured rate that transfers take. The remainder is for
  // everything else on the link, so that no queue builds up.
  static constexpr double kShare = 0.9;
  // One in this many transfers is not paced, so that it measures.
  static constexpr uint64_t kMeasureEvery = 16;
  // The number of measurements of which the best counts, and of transfers that
  // are measured before the first is paced. TCP begins slowly and others may
  // use the link, but nothing is faster than the link.
  static constexpr size_t kKept = 3;
  // The bounds of what is measured, in bytes per second.
  static constexpr double kSlowest = 25e3;
  static constexpr double kFastest = 12.5e9;
  // The least bytes that count: shorter transfers measure round trips rather
  // than the rate.
  static constexpr uint64_t kLeastBytes = 64 << 10;

  // Returns the bytes per second for the transfer that begins now; 0 for no
  // pacing.
  double Next() {
    absl::MutexLock lock(&mu_);
    if (measured_.size() < kKept || ++since_measured_ >= kMeasureEvery)
      return 0;
    return kShare * *std::max_element(measured_.begin(), measured_.end());
  }

  // Returns the measured rate; 0 if there is none yet.
  double Best() const {
    absl::MutexLock lock(&mu_);
    return measured_.empty()
               ? 0
               : *std::max_element(measured_.begin(), measured_.end());
  }

  // Records that an unpaced transfer carried `bytes` in `duration`.
  void Measured(uint64_t bytes, absl::Duration duration) {
    if (bytes < kLeastBytes || duration <= absl::ZeroDuration()) return;
    const double rate =
        static_cast<double>(bytes) / absl::ToDoubleSeconds(duration);
    absl::MutexLock lock(&mu_);
    since_measured_ = 0;
    measured_.push_back(std::clamp(rate, kSlowest, kFastest));
    if (measured_.size() > kKept) measured_.pop_front();
  }

 private:
  mutable absl::Mutex mu_;
  // Measurements in bytes per second, newest last.
  std::deque<double> measured_ ABSL_GUARDED_BY(mu_);
  uint64_t since_measured_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_RATE_FINDER_H_
