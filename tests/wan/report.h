// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a scenario measured: as JSON, with every run and per setting and network
// the median and the spread, and as a table for people. Pure.
//
// Fields of the JSON, per setting and network; a figure X of the table below is
// the median of the runs, X_min and X_max are their extremes:
//
//   compute_utilization  share of the time that islands did not stand still for
//                        synchronization, mean over islands (see MeasureSpeed)
//   relative_speed       inner steps per second against the baseline of the
//                        same repeat, mean over islands; only with a baseline
//   bytes_up, bytes_down         encoded bytes, at the coordinator
//   wire_bytes_up, wire_bytes_down  bytes of frames that links transmitted
//   peak_mbit_s          the busiest second of any link in one direction
//   coordinator_peak_mbit_s  the same for all links together
//   val_loss             nats per token
//   false_evictions, evictions   sums over the runs
//   runs                 each run, with the islands' links as set and measured
#ifndef TESTS_WAN_REPORT_H_
#define TESTS_WAN_REPORT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/wan/trial.h"

namespace causeway {

// A run that has been made.
struct TrialRecord {
  // Names, as in the scenario.
  std::string setting;
  std::string network;
  uint64_t repeat = 0;
  TrialResult result;
};

// `baselines` has the runs without synchronization, by repeat; empty if there
// were none. Groups appear in the order of their first record.
nlohmann::ordered_json MakeReport(const std::string& scenario,
                                  const std::vector<TrialRecord>& records,
                                  const std::vector<TrialResult>& baselines);

// The main figures of a report, a line per setting and network.
void PrintReport(const nlohmann::ordered_json& report, std::ostream& out);

}  // namespace causeway

#endif  // TESTS_WAN_REPORT_H_
