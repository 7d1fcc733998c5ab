// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reports a scenario's measurements: as JSON, with every run and per setting
// and network the median and the spread, and as a table for people.
//
// Fields of the JSON, per setting and network; a figure X of the table below is
// the median of the runs, X_min and X_max are their extremes:
//
//   compute_utilization  inner steps per second against the baseline of the
//                        same repeat (the same islands without
//                        synchronization), mean over islands; only with one
//   training_share       share of the time that islands did not stand still for
//                        synchronization, by their own account, mean over
//                        islands (see MeasureSpeed)
//   bytes_up, bytes_down         encoded bytes, at the coordinator
//   data_parallel_ratio  what data parallel training in 16 bits would have
//                        moved for the same steps, over bytes_up and bytes_down
//   wire_bytes_up, wire_bytes_down  bytes of frames that links transmitted
//   peak_mbit_s          the busiest second of any link in one direction
//   coordinator_peak_mbit_s  the same for all links together
//   achieved_up_mbit_s, achieved_down_mbit_s  encoded bytes over the time with
//                        transfers under way, mean over islands
//   val_loss             nats per token
//   false_evictions, evictions   sums over the runs
//   runs                 each run, with the islands' links as set and measured
#ifndef TESTS_WAN_REPORT_H_
#define TESTS_WAN_REPORT_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/wan/trial.h"

namespace causeway {

class Report {
 public:
  explicit Report(std::string scenario) : scenario_(std::move(scenario)) {}

  // Returns the report of an earlier lab, to be continued. `text` is its JSON.
  //   INVALID_ARGUMENT  `text` is not a report, or one of another scenario.
  static absl::StatusOr<Report> Parse(std::string scenario,
                                      const std::string& text);

  bool HasBaseline(uint64_t repeat) const {
    return baselines_.count(repeat) > 0;
  }
  bool Has(const std::string& setting, const std::string& network,
           uint64_t repeat) const;

  // Call this before adding the runs of the same repeat.
  void AddBaseline(uint64_t repeat, const TrialResult& result);
  // Call this once for each setting, network and repeat.
  void Add(const std::string& setting, const std::string& network,
           uint64_t repeat, const TrialResult& result);

  // Returns the report, with settings and networks in the order in which they
  // were added.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Group {
    std::string setting;
    std::string network;
    std::map<uint64_t, nlohmann::ordered_json> runs;
  };

  Group& GroupOf(const std::string& setting, const std::string& network);

  std::string scenario_;
  // The baselines by repeat.
  std::map<uint64_t, nlohmann::ordered_json> baselines_;
  std::vector<Group> groups_;
};

// Prints the main figures of a report, a line per setting and network.
void PrintReport(const nlohmann::ordered_json& report, std::ostream& out);

}  // namespace causeway

#endif  // TESTS_WAN_REPORT_H_
