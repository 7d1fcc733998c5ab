// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds the rate to pace a link's transfers to, from how fast transfers were
// that were not paced. Paced ones tell nothing: they are never faster than
// their pace, so that a rate taken from them could only fall.
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

// Thread-safe.
class RateFinder {
 public:
  // What is left of the measured rate for everything else on the link, so that
  // no queue stands before it.
  static constexpr double kShare = 0.9;
  // One transfer in so many is not paced, to measure.
  static constexpr uint64_t kMeasureEvery = 16;
  // The best of so many measurements counts, and so many transfers are measured
  // before the first is paced: TCP begins slowly, and others may have had a
  // part of the link, but nothing is faster than it.
  static constexpr size_t kKept = 3;
  // Bounds of what is measured, in bytes per second.
  static constexpr double kSlowest = 25e3;
  static constexpr double kFastest = 12.5e9;
  // Shorter transfers say more of round trips than of the rate.
  static constexpr uint64_t kLeastBytes = 64 << 10;

  // Bytes per second for the transfer that begins now; 0 is without pace.
  double Next() {
    absl::MutexLock lock(&mu_);
    if (measured_.size() < kKept || ++since_measured_ >= kMeasureEvery)
      return 0;
    return kShare * *std::max_element(measured_.begin(), measured_.end());
  }

  // The measured rate; 0 before there is one.
  double Best() const {
    absl::MutexLock lock(&mu_);
    return measured_.empty()
               ? 0
               : *std::max_element(measured_.begin(), measured_.end());
  }

  // A transfer that was not paced carried so much in so long.
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
  // Bytes per second, newest last.
  std::deque<double> measured_ ABSL_GUARDED_BY(mu_);
  uint64_t since_measured_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_RATE_FINDER_H_
