// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans the bits per value with which an island's contributions arrive in time
// over its uplink (synchronization.uplink_bits_floor).
//
// An update is due tau steps after the send. The outer step and the download
// leave a time t of this for the upload. At r bits per second, r t / n bits
// arrive for each of n values. An upload also waits for earlier fragments'
// uploads.
//
// Measured rates vary, so the plan changes only after kRounds measurements in a
// row ask for it: for fewer bits, if none of them would have been in time, or
// for at least kRise times as many. It then takes kShare of the bits that the
// worst of them allows. Islands that share an uplink each measure their share
// of its rate.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_UPLINK_BITS_H_
#define SERVER_RULES_UPLINK_BITS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

// A fragment's send. Sends recur in every round.
struct UplinkSend {
  double values = 0;
  // The time of the send, since the round began.
  double at_seconds = 0;
  // The time within which the upload must be complete.
  double available_seconds = 0;
};

// Returns the time for an upload: the overlap without `other_seconds`, the rest
// of the exchange, but at least a tenth of the overlap. If even less is left,
// fewer bits help little.
double UploadSeconds(double overlap_seconds, double other_seconds);

// Returns the most bits per value with which every upload is complete in time,
// if they go one after the other at `bits_per_second`. `sends` are in the order
// of their times.
double BitsInTime(absl::Span<const UplinkSend> sends, double round_seconds,
                  double bits_per_second);

class UplinkBits {
 public:
  // The measurements that must agree, and the rounds over which each measures
  // the rate.
  static constexpr int kRounds = 3;
  static constexpr int kRateRounds = 6;
  static constexpr double kShare = 0.9;
  static constexpr double kRise = 1.5;

  struct Limits {
    double floor = 0;
    double target = 0;
  };

  // Begins with `bits`, within the limits; with the target if they are 0.
  UplinkBits(const Limits& limits, double bits);

  // Returns the bits to plan if `in_time` bits arrive in time.
  static double Plan(const Limits& limits, double in_time);

  // Notes how many bytes an island had sent, and how long uploads had taken, at
  // the end of a round. Returns the rate over the last kRateRounds of these,
  // in bits per second; none if nothing new was sent.
  std::optional<double> RateAt(uint64_t bytes, double busy_seconds);

  // Notes the measurement of a round: `in_time` bits would just have arrived in
  // time. Returns the old bits if the plan changes.
  std::optional<double> Heard(double in_time);

  double bits() const { return bits_; }
  // Returns the last measurement; 0 before the first.
  double in_time() const { return recent_.empty() ? 0 : recent_.back(); }
  // Returns whether even the floor's bits would have come too late.
  bool is_too_slow() const { return in_time() < limits_.floor; }

 private:
  Limits limits_;
  double bits_;
  // The last measurements, newest last, and how many of them came after the
  // last change.
  std::vector<double> recent_;
  int since_change_ = 0;
  // The sums of RateAt, oldest first, in bits and seconds.
  std::vector<std::pair<double, double>> sums_ = {{0, 0}};
};

}  // namespace causeway

#endif  // SERVER_RULES_UPLINK_BITS_H_
