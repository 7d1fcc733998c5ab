// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One history of elections: coordinators with an etcd, faults for some time,
// and then none. From then on a leader must publish again within a bound, and
// all coordinators must be in sync.
#ifndef TESTS_SIMULATION_ELECTIONS_ELECTION_HISTORY_H_
#define TESTS_SIMULATION_ELECTIONS_ELECTION_HISTORY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace causeway::simulation {

struct ElectionResult {
  // The first violation, or an empty string.
  std::string violation;
  uint64_t events = 0;
  uint64_t faults = 0;
  // Versions that were published, and the last epoch.
  uint64_t published = 0;
  uint64_t epochs = 0;
  absl::Duration virtual_time;
};

// Runs the history of `seed`, without the faults whose bits are set in
// `without`. With `trace`, prints the events.
ElectionResult RunElectionHistory(uint64_t seed, uint32_t without, bool trace);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_ELECTION_HISTORY_H_
