// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Detects islands that train too slowly: at less than kSlow of the median live
// island's pace, or of their own usual pace. kReports reports in a row must
// agree that an island is slow, and as many that it no longer is.
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
  // The usual pace is the median of this many last reports.
  static constexpr size_t kUsual = 60;

  // Notes a report of the mean duration of an inner step, in seconds, and the
  // newest reports of all live islands. If the island has become slow, or no
  // longer is, returns that as the end of a sentence about it.
  std::optional<std::string> Heard(double step_seconds,
                                   std::vector<double> all_live);

  bool is_slow() const { return is_slow_; }
  // Returns whether the island is slow compared with others, not only with its
  // own past.
  bool is_behind_others() const { return is_slow_ && others_are_faster_; }

 private:
  bool is_slow_ = false;
  // The last report decides this.
  bool others_are_faster_ = false;
  // The number of last reports in a row that contradict is_slow_.
  int disagreeing_ = 0;
  // The last kUsual reports, newest last.
  std::deque<double> usual_;
};

}  // namespace causeway

#endif  // SERVER_RULES_ISLAND_PACE_H_
