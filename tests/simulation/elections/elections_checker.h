// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// These must hold in every history of elections:
//
// * A published version is never lost or replaced: it is on every complete disk
//   of a coordinator in sync, whenever a version is published and whenever the
//   office changes.
// * No two processes lead with the same epoch, and the office's only rises.
// * A follower has what it acknowledges on its disk, as the leader has it.
#ifndef TESTS_SIMULATION_ELECTIONS_ELECTIONS_CHECKER_H_
#define TESTS_SIMULATION_ELECTIONS_ELECTIONS_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/election.pb.h"
#include "proto/replication.pb.h"
#include "tests/simulation/elections/election_disk.h"
#include "tests/simulation/violations.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

class ElectionsChecker {
 public:
  // Both outlive the checker.
  ElectionsChecker(World* world, const std::vector<ElectionDisk>* disks)
      : violations_(world), disks_(disks) {}

  const std::string& violation() const { return violations_.first(); }
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    violations_.Note(parts...);
  }

  // `process` leads, under a number that no other process has.
  void Leads(const std::string& name, uint64_t process, uint64_t epoch);
  // `name` shows the result of the first `index` changes of its log.
  void Published(const std::string& name, const ElectionDisk& disk,
                 size_t index);
  void Acknowledges(const std::string& name, const ElectionDisk& disk,
                    const ElectionDisk& leader, size_t index);
  // etcd has this office.
  void OfficeIs(const std::string& written);

  // Versions that were published, and the office as it is.
  uint64_t published() const { return published_; }
  const v1::Office& office() const { return office_; }

 private:
  // Checks that all in sync have what was published.
  void CheckInSync(const char* when);

  Violations violations_;
  const std::vector<ElectionDisk>* const disks_;
  std::string written_;
  v1::Office office_;
  uint64_t published_ = 0;
  // The positions of the log that was published.
  std::vector<v1::LogPosition> truth_;
  std::map<uint64_t, uint64_t> leaders_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_ELECTIONS_CHECKER_H_
