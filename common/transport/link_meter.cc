// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/link_meter.h"

#include <algorithm>

namespace causeway {

void LinkMeter::Begin(absl::Duration round_trip) {
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  if (under_way_++ > 0) return;
  busy_since_ = now;
  round_trip_ = round_trip;
  begins_.push_back({.busy = busy_, .bytes = timed_bytes_});
  points_.clear();
}

void LinkMeter::End() {
  absl::MutexLock lock(&mu_);
  if (under_way_ == 1) {
    busy_ = BusyLocked();
    ForgetBefore(busy_ - kWindow, begins_);
    last_rate_ = Slope(begins_.front(), {.busy = busy_, .bytes = timed_bytes_});
  }
  --under_way_;
}

void LinkMeter::Add(uint64_t bytes, bool again) {
  absl::MutexLock lock(&mu_);
  bytes_ += bytes;
  if (again) bytes_again_ += bytes;
  if (under_way_ == 0) return;
  Point point = {.busy = now_() - busy_since_, .bytes = timed_bytes_};
  timed_bytes_ += bytes;
  if (counts_ == Counts::kArrived) point.bytes = timed_bytes_;
  if (!points_.empty() && point.busy - points_.back().busy < kWindow / 100) {
    return;
  }
  points_.push_back(point);
  ForgetBefore(point.busy - kWindow, points_);
}

uint64_t LinkMeter::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

void LinkMeter::ForgetBefore(absl::Duration busy, std::deque<Point>& points) {
  while (points.size() > 1 && points[1].busy <= busy) points.pop_front();
}

double LinkMeter::Slope(const Point& from, const Point& to) {
  return to.busy > from.busy ? static_cast<double>(to.bytes - from.bytes) /
                                   absl::ToDoubleSeconds(to.busy - from.busy)
                             : 0;
}

double LinkMeter::RateUnderWay(const Point& now) const {
  const double mean = Slope(begins_.front(), now);
  double rate = last_rate_ > 0 ? last_rate_ : mean;
  if (points_.size() > 1) {
    // Buffers may have taken many bytes between the first two points.
    rate = Slope(points_[points_.size() > 2 ? 1 : 0], points_.back());
  }
  // Bytes cannot pass faster than they were added.
  if (counts_ == Counts::kOutgoing) rate = std::min(rate, mean);
  // The transfer stalls: nothing was added for kWindow.
  const absl::Duration elapsed = now_() - busy_since_;
  if (!points_.empty() && elapsed - points_.back().busy > kWindow) {
    rate = std::min(
        rate, Slope(points_.front(), {.busy = elapsed, .bytes = now.bytes}));
  }
  return rate;
}

v1::LinkUse LinkMeter::Use() const {
  absl::MutexLock lock(&mu_);
  const Point now = {.busy = BusyLocked(), .bytes = timed_bytes_};
  v1::LinkUse use;
  use.set_bytes_per_second(under_way_ > 0 ? RateUnderWay(now) : last_rate_);
  use.set_busy_seconds(absl::ToDoubleSeconds(now.busy));
  use.set_paced_seconds(absl::ToDoubleSeconds(paced_));
  use.set_bytes_sent_again(bytes_again_);
  return use;
}

}  // namespace causeway
