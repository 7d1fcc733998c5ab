// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells when an island trains slower than it should: at less than kSlow of the
// pace of the median live island, or of its own usual pace. One report is no
// evidence: kReports in a row must agree, and so many must show that it is
// over.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_ISLAND_PACE_H_
#define SERVER_RULES_ISLAND_PACE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace causeway {

class IslandPace {
 public:
  static constexpr double kSlow = 0.75;
  static constexpr double kEven = 0.85;
  static constexpr int kReports = 5;
  // The reports that show what is usual: the median of so many, after the first
  // few, in which processors and caches warm up.
  static constexpr size_t kUsual = 60;

  // Notes a new report of the mean duration of an inner step, in seconds, with
  // those of all live islands. If the island has become slow, or is not any
  // more, returns that as the end of a sentence about the island.
  std::optional<std::string> Heard(double step_seconds,
                                   std::vector<double> all_live);

  bool is_slow() const { return is_slow_; }
  // Returns whether the island is slow and others are faster, so that it is not
  // only slower than it was itself.
  bool is_behind_others() const { return is_slow_ && others_are_faster_; }

 private:
  bool is_slow_ = false;
  // The last report decides this.
  bool others_are_faster_ = false;
  // The reports in a row that say otherwise than is_slow_.
  int disagreeing_ = 0;
  // The last kUsual reports, newest last.
  std::deque<double> usual_;
};

}  // namespace causeway

#endif  // SERVER_RULES_ISLAND_PACE_H_
