// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The contents of a history of elections: the number of coordinators, and the
// possible faults. Everything comes from the seed.
#ifndef TESTS_SIMULATION_ELECTIONS_SCENARIO_H_
#define TESTS_SIMULATION_ELECTIONS_SCENARIO_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace causeway::simulation {

enum class ElectionFault : uint32_t {
  kKill,
  kStall,
  kPartition,
  // The disk is lost with its contents.
  kWipe,
  kSlowDisk,
  // Messages to and from etcd that are lost, that are delayed until long after
  // the caller has given up, and that arrive twice.
  kLoss,
  kDelay,
  kDouble,
  kEtcdAway,
  // Leases that end early, or late, and keep-alives of ended leases that older
  // etcds grant.
  kLeaseEarly,
  kLeaseLate,
  kStaleKeepAlive,
  kClockSkew,
  kCount,
};

struct ElectionScenario {
  uint32_t coordinators = 3;
  absl::Duration lease;
  absl::Duration faulty_time;
  uint32_t faults = 0;

  bool Has(ElectionFault fault) const {
    return (faults >> static_cast<uint32_t>(fault) & 1) != 0;
  }
  std::string Describe() const;
};

ElectionScenario DrawElectionScenario(uint64_t seed);

// Convert between a coordinator and its name, which is also its address.
std::string CoordinatorName(uint32_t coordinator);
inline uint32_t CoordinatorOf(const std::string& name) {
  return static_cast<uint32_t>(name[0] - 'a');
}

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_SCENARIO_H_
