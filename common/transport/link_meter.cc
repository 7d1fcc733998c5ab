// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/link_meter.h"

namespace causeway {

void LinkMeter::Begin() {
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  if (under_way_++ == 0) busy_since_ = now;
}

void LinkMeter::End() {
  absl::MutexLock lock(&mu_);
  if (under_way_ == 1) busy_ = BusyLocked();
  --under_way_;
}

void LinkMeter::Add(uint64_t bytes, bool again) {
  absl::MutexLock lock(&mu_);
  bytes_ += bytes;
  if (again) bytes_again_ += bytes;
  const Point point = {.busy = BusyLocked(), .bytes = bytes_};
  if (point.busy - points_.back().busy < kWindow / 100) return;
  points_.push_back(point);
  // The window begins at the first point, so that may be older.
  while (point.busy - points_[1].busy >= kWindow) points_.pop_front();
}

uint64_t LinkMeter::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

v1::LinkUse LinkMeter::Use() const {
  absl::MutexLock lock(&mu_);
  const absl::Duration busy = BusyLocked();
  const Point& from = points_.front();
  v1::LinkUse use;
  if (busy > from.busy) {
    use.set_bytes_per_second(static_cast<double>(bytes_ - from.bytes) /
                             absl::ToDoubleSeconds(busy - from.busy));
  }
  use.set_busy_seconds(absl::ToDoubleSeconds(busy));
  use.set_paced_seconds(absl::ToDoubleSeconds(paced_));
  use.set_bytes_sent_again(bytes_again_);
  return use;
}

}  // namespace causeway
