// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_PLAN_PEAK_METER_H_
#define CLI_PLAN_PEAK_METER_H_

#include <algorithm>
#include <cmath>

namespace causeway {

// Finds the most bits in any second; seconds are counted from time 0.
class PeakMeter {
 public:
  // Adds `bits` that are carried evenly from `begin` to `end`. Times do not
  // fall from call to call.
  void Add(double begin, double end, double bits) {
    if (std::floor(begin) > second_) StartSecond(std::floor(begin));
    if (const double ended = std::floor(end) - second_; ended > 0) {
      const double rate = bits / (end - begin);
      Count(rate * (second_ + 1 - begin));
      if (ended > 1) peak_ = std::max(peak_, rate);
      StartSecond(std::floor(end));
      bits = rate * (end - second_);
    }
    Count(bits);
  }

  double peak() const { return peak_; }

 private:
  void StartSecond(double second) {
    second_ = second;
    bits_ = 0;
  }

  void Count(double bits) {
    bits_ += bits;
    peak_ = std::max(peak_, bits_);
  }

  // The start of the second that is being counted, and its bits so far.
  double second_ = 0;
  double bits_ = 0;
  double peak_ = 0;
};

}  // namespace causeway

#endif  // CLI_PLAN_PEAK_METER_H_
