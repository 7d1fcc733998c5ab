// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures one direction of a link during transfers, perhaps several at once:
//
//   LinkMeter meter(LinkMeter::Counts::kOutgoing, now);
//   {
//     LinkMeter::Transfer transfer(&meter);
//     meter.Add(chunk.size());  // for each chunk
//   }
//   meter.Use();
//
// A meter of outgoing chunks counts a chunk when buffers of this host take it.
// So at the start of a transfer the bytes added run ahead of the link, and at
// its end the link still carries some of them. This cancels out between the
// start of a transfer and the end of one, and between two chunks in the middle,
// so the rate is measured between these.
//
// The last answer of an upload comes a round trip after its last byte set out.
// Uploads that overlap wait for it together. So a round trip is subtracted from
// each time in which transfers were under way.
#ifndef COMMON_TRANSPORT_LINK_METER_H_
#define COMMON_TRANSPORT_LINK_METER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// Thread-safe.
class LinkMeter {
 public:
  // The busy time, with transfers under way, over which the rate is measured.
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // Says whether chunks are added when they set out or when they have arrived.
  enum class Counts { kOutgoing, kArrived };

  LinkMeter(Counts counts, Clock now) : counts_(counts), now_(std::move(now)) {}

  // A transfer that is under way while this object lives, and that ends a
  // round trip after its last byte has set out.
  class Transfer {
   public:
    explicit Transfer(LinkMeter* meter,
                      absl::Duration round_trip = absl::ZeroDuration())
        : meter_(meter) {
      meter_->Begin(round_trip);
    }
    ~Transfer() { meter_->End(); }
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

   private:
    LinkMeter* const meter_;
  };

  // Counts the encoded bytes of a chunk; `again` if they were sent before. The
  // rate leaves them out if no transfer is under way.
  void Add(uint64_t bytes, bool again = false);
  // Counts the time for which pacing holds a chunk back.
  void AddPaced(absl::Duration wait) {
    absl::MutexLock lock(&mu_);
    paced_ += wait;
  }

  // Returns the total of the bytes added.
  uint64_t bytes() const;

  // Returns the link's use as of now, without the pacing rate and TCP's
  // retransmissions, which the meter does not know.
  v1::LinkUse Use() const;

 private:
  // A point on the curve of bytes over busy time.
  struct Point {
    absl::Duration busy;
    uint64_t bytes = 0;
  };
  // Removes the points before the time, except the last of them.
  static void ForgetBefore(absl::Duration busy, std::deque<Point>& points);
  // Returns the slope between two points; 0 if they have the same time.
  static double Slope(const Point& from, const Point& to);
  // Returns the rate while a transfer is under way.
  double RateUnderWay(const Point& now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Begin(absl::Duration round_trip);
  void End();
  // Returns the busy time, which never falls.
  absl::Duration BusyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (under_way_ == 0) return busy_;
    const absl::Duration time = now_() - busy_since_;
    return busy_ + std::max(time / 10, time - round_trip_);
  }

  const Counts counts_;
  const Clock now_;

  mutable absl::Mutex mu_;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  // The start of the current busy time, if a transfer is under way, the round
  // trip to subtract from it, and the total of the earlier ones.
  absl::Time busy_since_ ABSL_GUARDED_BY(mu_);
  absl::Duration round_trip_ ABSL_GUARDED_BY(mu_);
  absl::Duration busy_ ABSL_GUARDED_BY(mu_);
  absl::Duration paced_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t timed_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_again_ ABSL_GUARDED_BY(mu_) = 0;
  // The starts of busy times in the last kWindow, and one that is older.
  std::deque<Point> begins_ ABSL_GUARDED_BY(mu_) = {Point()};
  // Points of the last kWindow of the current busy time, at most one per
  // hundredth of it, with the bytes that have passed when a chunk is added.
  // Their times count from its start and include the round trip.
  std::deque<Point> points_ ABSL_GUARDED_BY(mu_);
  // The rate at the end of the last busy time.
  double last_rate_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_LINK_METER_H_
