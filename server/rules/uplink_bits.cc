// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/uplink_bits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace causeway {
namespace {

// Rounds down to hundredths, because people compare planned bits, but tolerates
// an error of the last bit.
double Rounded(double bits) { return std::floor(100 * bits + 1e-6) / 100; }

// Returns `bits` within the limits; the target if it is no number.
double Within(const UplinkBits::Limits& limits, double bits) {
  return std::max(limits.floor, bits < limits.target ? bits : limits.target);
}

}  // namespace

double UploadSeconds(double overlap_seconds, double other_seconds) {
  constexpr double kLeast = 0.1;
  return std::max(kLeast * overlap_seconds, overlap_seconds - other_seconds);
}

double BitsInTime(absl::Span<const UplinkSend> sends, double round_seconds,
                  double bits_per_second) {
  double all_values = 0;
  for (const UplinkSend& send : sends) all_values += send.values;
  // An upload ends when all that were queued since the uplink was last idle are
  // through. So each sequence of consecutive sends bounds the bits; the length
  // of a round covers all longer sequences.
  double seconds_per_value = round_seconds / all_values;
  for (size_t first = 0; first < sends.size(); ++first) {
    double values = 0;
    for (size_t i = first; i < first + sends.size(); ++i) {
      const UplinkSend& last = sends[i % sends.size()];
      const double at =
          last.at_seconds + (i < sends.size() ? 0 : round_seconds);
      values += last.values;
      const double seconds =
          at - sends[first].at_seconds + last.available_seconds;
      seconds_per_value = std::min(seconds_per_value, seconds / values);
    }
  }
  return seconds_per_value * bits_per_second;
}

UplinkBits::UplinkBits(const Limits& limits, double bits)
    : limits_(limits), bits_(Within(limits, bits > 0 ? bits : limits.target)) {}

double UplinkBits::Plan(const Limits& limits, double in_time) {
  if (in_time >= limits.target) return limits.target;
  return Within(limits, Rounded(kShare * in_time));
}

std::optional<double> UplinkBits::RateAt(uint64_t bytes, double busy_seconds) {
  const double bits = 8 * static_cast<double>(bytes);
  if (bits == sums_.back().first) return std::nullopt;
  sums_.push_back({bits, busy_seconds});
  if (sums_.size() > kRateRounds + 1) sums_.erase(sums_.begin());
  // A report that comes during an upload counts bytes that are still on their
  // way. That evens out over some rounds.
  const auto [bits_before, seconds_before] = sums_.front();
  const double seconds = busy_seconds - seconds_before;
  if (!(bits > bits_before && seconds > 0)) return std::nullopt;
  return (bits - bits_before) / seconds;
}

std::optional<double> UplinkBits::Heard(double in_time) {
  recent_.push_back(in_time);
  if (recent_.size() > kRounds) recent_.erase(recent_.begin());
  if (++since_change_ < kRounds) return std::nullopt;
  const auto [worst, best] =
      std::minmax_element(recent_.begin(), recent_.end());
  if (*best >= bits_ && *worst < kRise * bits_) return std::nullopt;
  const double planned = Plan(limits_, *worst);
  // The limits may leave the plan as it is.
  if (planned == bits_) return std::nullopt;
  since_change_ = 0;
  return std::exchange(bits_, planned);
}

}  // namespace causeway
