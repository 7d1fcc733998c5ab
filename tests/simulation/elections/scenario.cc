// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/scenario.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {
namespace {

constexpr uint32_t kCount = static_cast<uint32_t>(ElectionFault::kCount);
constexpr absl::string_view kNames[kCount] = {
    "kill",      "stall",       "partition",  "wipe",
    "slow-disk", "loss",        "delay",      "double",
    "etcd-away", "lease-early", "lease-late", "stale-keep-alive",
    "clock-skew"};

}  // namespace

std::string CoordinatorName(uint32_t coordinator) {
  return std::string(1, static_cast<char>('a' + coordinator));
}

std::string ElectionScenario::Describe() const {
  std::string text = absl::StrCat(coordinators, " coordinators, a lease of ",
                                  absl::FormatDuration(lease), ", faults for ",
                                  absl::FormatDuration(faulty_time), ":");
  for (uint32_t fault = 0; fault < kCount; ++fault) {
    if (Has(static_cast<ElectionFault>(fault))) {
      absl::StrAppend(&text, " ", kNames[fault]);
    }
  }
  return text;
}

ElectionScenario DrawElectionScenario(uint64_t seed) {
  Chance chance(seed);
  ElectionScenario scenario;
  scenario.coordinators =
      chance.OneIn(3) ? static_cast<uint32_t>(chance.Between(2, 5)) : 3;
  scenario.lease = absl::Seconds(chance.Between(2, 5));
  scenario.faulty_time = chance.Between(absl::Seconds(20), absl::Seconds(60));
  for (uint32_t fault = 0; fault < kCount; ++fault) {
    if (chance.OneIn(2)) scenario.faults |= 1u << fault;
  }
  return scenario;
}

}  // namespace causeway::simulation
