// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A token bucket that tells a sender when to send, so that all its streams
// together keep to a rate. It refuses nothing: bytes beyond the rate are sent
// later, in the order of the calls.
//
//   Pacer pacer;
//   pacer.SetRate(bytes_per_second);
//   const absl::Time when = pacer.Take(now, chunk.size());
//   // wait until `when`, then send
#ifndef COMMON_TRANSPORT_PACER_H_
#define COMMON_TRANSPORT_PACER_H_

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/transport/chunk.h"

namespace causeway {

// Thread-safe.
class Pacer {
 public:
  // After a pause, this much time's bytes, at the rate, may go at once.
  static constexpr absl::Duration kBurst = absl::Milliseconds(20);

  // Sets the rate for all later calls of Take; 0 turns pacing off.
  void SetRate(double bytes_per_second) {
    absl::MutexLock lock(&mu_);
    rate_ = bytes_per_second;
  }

  double rate() const {
    absl::MutexLock lock(&mu_);
    return rate_;
  }

  // Returns when `bytes` may be sent: `now` or later.
  absl::Time Take(absl::Time now, uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    if (rate_ <= 0) return now;
    const absl::Time earliest = std::max(free_, now - kBurst);
    free_ = earliest + absl::Seconds(static_cast<double>(bytes) / rate_);
    return std::max(earliest, now);
  }

 private:
  mutable absl::Mutex mu_;
  double rate_ ABSL_GUARDED_BY(mu_) = 0;
  // The time at which all bytes taken will have been sent.
  absl::Time free_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// Returns the size of paced chunks that do not make each other wait for long:
// the bytes of Pacer::kBurst, at least 16 KiB; the largest chunk if there is no
// rate.
inline uint64_t PacedChunkBytes(double bytes_per_second) {
  constexpr double kLeast = 16 << 10;
  if (bytes_per_second <= 0) return kMaxChunkBytes;
  const double bytes = bytes_per_second * absl::ToDoubleSeconds(Pacer::kBurst);
  return static_cast<uint64_t>(
      std::clamp(bytes, kLeast, static_cast<double>(kMaxChunkBytes)));
}

}  // namespace causeway

#endif  // COMMON_TRANSPORT_PACER_H_
