// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/shaper.h"

#include <algorithm>
#include <utility>

namespace causeway {

Shaper::Shaper(absl::Time now, const ShaperSettings& settings, uint64_t seed)
    : settings_(settings), random_(seed), counting_since_(now) {}

void Shaper::Configure(absl::Time now, const ShaperSettings& settings) {
  Transmit(now);
  if (!queue_.empty()) {
    transmitted_at_ =
        now + (transmitted_at_ - now) *
                  (settings_.bits_per_second / settings.bits_per_second);
  }
  settings_ = settings;
  if (settings_.partitioned) {
    counters_.partitioned += static_cast<int64_t>(queue_.size() + wire_.size());
    queue_.clear();
    queued_bytes_ = 0;
    wire_.clear();
  }
}

void Shaper::Send(absl::Time now, std::string frame) {
  Transmit(now);
  if (settings_.partitioned) {
    ++counters_.partitioned;
    return;
  }
  const int64_t bytes = static_cast<int64_t>(frame.size());
  if (queued_bytes_ + bytes > settings_.queue_bytes) {
    ++counters_.overflowed;
    return;
  }
  if (queue_.empty()) transmitted_at_ = now + TransmissionTime(frame);
  queued_bytes_ += bytes;
  queue_.push_back(std::move(frame));
}

std::optional<std::string> Shaper::Receive(absl::Time now) {
  Transmit(now);
  if (wire_.empty() || wire_.front().due > now) return std::nullopt;
  std::string frame = std::move(wire_.front().frame);
  wire_.pop_front();
  return frame;
}

absl::Time Shaper::NextDue() const {
  if (!wire_.empty()) return wire_.front().due;
  return queue_.empty()
             ? absl::InfiniteFuture()
             : std::max(last_due_, transmitted_at_ + settings_.delay);
}

absl::Duration Shaper::TransmissionTime(const std::string& frame) const {
  return absl::Seconds(8 * static_cast<double>(frame.size()) /
                       settings_.bits_per_second);
}

void Shaper::Transmit(absl::Time now) {
  while (!queue_.empty() && transmitted_at_ <= now) {
    std::string frame = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= static_cast<int64_t>(frame.size());
    const absl::Time transmitted_at = transmitted_at_;
    Count(transmitted_at, static_cast<int64_t>(frame.size()));
    if (!queue_.empty()) transmitted_at_ += TransmissionTime(queue_.front());
    if (Uniform() < settings_.loss) {
      ++counters_.lost;
      continue;
    }
    last_due_ = std::max(last_due_, transmitted_at + settings_.delay +
                                        settings_.jitter * Uniform());
    wire_.push_back({last_due_, std::move(frame)});
  }
}

void Shaper::ResetCounters(absl::Time now) {
  Transmit(now);
  counters_ = {};
  counting_since_ = now;
}

void Shaper::Count(absl::Time transmitted_at, int64_t bytes) {
  ++counters_.frames;
  counters_.bytes += bytes;
  const auto second = static_cast<size_t>(
      absl::ToInt64Seconds(transmitted_at - counting_since_));
  if (counters_.bytes_by_second.size() <= second) {
    counters_.bytes_by_second.resize(second + 1);
  }
  counters_.bytes_by_second[second] += bytes;
}

double Shaper::Uniform() {
  return std::uniform_real_distribution<double>()(random_);
}

}  // namespace causeway
