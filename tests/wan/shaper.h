// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One direction of an emulated link, in virtual time: frames go in with the
// time at which they came and come out with the time at which they are due. No
// clock, no thread, no device; tests/wan/link.h puts two of these between two
// network devices.
//
//   Send -> queue (bounded) -> transmitter (rate) -> wire (delay, jitter)
//        -> Receive
//
// A frame meets these in order:
//   * While the link is partitioned, everything that is in it or comes to it
//     is dropped.
//   * A frame that does not fit into the queue is dropped (tail drop). The
//     frame in transmission counts as queued.
//   * The transmitter takes 8 * bytes / bits_per_second for a frame, one after
//     the other, and never stands still while there is one: how late the caller
//     asks has no influence on the rate.
//   * With probability `loss`, independently, a frame is lost once it has been
//     transmitted, so that lost frames take their share of the rate.
//   * Then it takes `delay` and a uniform share of `jitter`. Frames never
//     overtake one another: one that drew less than its predecessor arrives
//     with it.
//
// A change of the settings applies to the queue and to the rest of the frame in
// transmission; frames on the wire keep their time.
#ifndef TESTS_WAN_SHAPER_H_
#define TESTS_WAN_SHAPER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace causeway {

// A rate that is more than a link in user space carries.
inline constexpr double kUnlimitedBitsPerSecond = 10e9;

struct ShaperSettings {
  // The rate of whole frames as Send gets them. Above 0.
  double bits_per_second = kUnlimitedBitsPerSecond;
  absl::Duration delay;
  absl::Duration jitter;
  // The share of lost frames, in [0, 1].
  double loss = 0;
  int64_t queue_bytes = 1 << 20;
  bool partitioned = false;

  bool operator==(const ShaperSettings&) const = default;
};

class Shaper {
 public:
  struct Counters {
    // Transmitted frames, including those lost on the wire.
    int64_t frames = 0;
    int64_t bytes = 0;
    // Frames dropped because the queue was full.
    int64_t overflowed = 0;
    // Frames lost at random.
    int64_t lost = 0;
    // Frames dropped by a partition.
    int64_t partitioned = 0;
    // The transmitted bytes by the second in which their transmission ended,
    // since the counters were reset.
    std::vector<int64_t> bytes_by_second;
  };

  // `seed` decides losses and jitter. The counters begin at `now`.
  Shaper(absl::Time now, const ShaperSettings& settings, uint64_t seed);

  // In all of these, `now` never decreases from call to call.

  void Configure(absl::Time now, const ShaperSettings& settings);
  void Send(absl::Time now, std::string frame);

  // Returns the next frame that is due by `now`, if any. Call it until there is
  // none.
  std::optional<std::string> Receive(absl::Time now);

  // Returns when the next call of Receive has something to do; InfiniteFuture
  // if the link is empty.
  absl::Time NextDue() const;

  const Counters& counters() const { return counters_; }
  void ResetCounters(absl::Time now);

 private:
  struct FrameOnWire {
    absl::Time due;
    std::string frame;
  };

  absl::Duration TransmissionTime(const std::string& frame) const;
  // Moves the frames that have been transmitted by `now` to the wire.
  void Transmit(absl::Time now);
  void Count(absl::Time transmitted_at, int64_t bytes);
  // Returns a value in [0, 1).
  double Uniform();

  ShaperSettings settings_;
  std::mt19937_64 random_;
  Counters counters_;
  absl::Time counting_since_;

  std::deque<std::string> queue_;
  int64_t queued_bytes_ = 0;
  // The time when the first frame of the queue is transmitted, if there is one.
  absl::Time transmitted_at_;

  std::deque<FrameOnWire> wire_;
  // The time when the last frame on the wire is due.
  absl::Time last_due_ = absl::InfinitePast();
};

}  // namespace causeway

#endif  // TESTS_WAN_SHAPER_H_
