// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The disk of a simulated coordinator: the run's log, and what goes with it.
#ifndef TESTS_SIMULATION_ELECTIONS_ELECTION_DISK_H_
#define TESTS_SIMULATION_ELECTIONS_ELECTION_DISK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/replication.pb.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

using LogOfChanges = std::vector<std::shared_ptr<const v1::LogChange>>;

// Returns the digest of a log after another change.
inline std::string ChainOf(absl::string_view before, uint64_t epoch,
                           absl::string_view rows) {
  // FNV-1a, so that histories are the same everywhere.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : absl::StrCat(before, "/", epoch, "/", rows)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return absl::StrCat(absl::Hex(hash));
}

struct ElectionDisk {
  // Empty if there is no run.
  std::string run_id;
  uint64_t epoch = 0;
  // If true, the run is another coordinator's.
  bool is_copy = false;
  // The machine of the leader that a copy was last filled by.
  uint32_t leader = 0;
  // If true, the run can continue from here.
  bool is_complete = false;
  LogOfChanges log;
  // The changes that certainly outlive a crash.
  size_t durable = 0;

  v1::LogPosition Position() const {
    return log.empty() ? v1::LogPosition() : log.back()->position();
  }
  // Crashes: keeps the state that the next start finds.
  void Crash(Chance& chance) {
    if (!is_complete) {
      *this = ElectionDisk();
      return;
    }
    log.resize(chance.Between(durable, log.size()));
    durable = log.size();
  }
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_ELECTION_DISK_H_
