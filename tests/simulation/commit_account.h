// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The checker's account of what was trained and of what each version contains:
// invariants 1, 2 and 6 of checker.h.
#ifndef TESTS_SIMULATION_COMMIT_ACCOUNT_H_
#define TESTS_SIMULATION_COMMIT_ACCOUNT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/violations.h"

namespace causeway::simulation {

// "version 3 of fragment 0".
std::string NameOf(const v1::FragmentHead& head);

class CommitAccount {
 public:
  // Both outlive the object.
  CommitAccount(const Scenario* scenario, Violations* violations);

  // A commit has become durable.
  void Add(const Commit& commit);
  uint64_t newest_version(uint32_t fragment) const {
    return commits_[fragment].size() - 1;
  }
  // Whether every fragment's last version is there.
  bool Complete(const SyncSchedule& schedule) const;

  // Somebody was told of a version: it must be there.
  void Heard(const v1::FragmentHead& head) { Find(head); }
  // The ledger as it is at a version.
  void CheckLedger(const v1::TokenLedger& ledger, const v1::FragmentHead& head);

  // --- What islands do. ---

  // A new process of `island`; its number.
  uint32_t NewProcess(uint32_t island);
  // The processes of `island` so far, in the order of their starts.
  std::vector<uint32_t> ProcessesOf(uint32_t island) const;
  void Trained(uint64_t tokens) { trained_tokens_ += tokens; }
  // The process has this replica of a fragment.
  void Holds(uint32_t process, const Replica& replica);

 private:
  // Null, and a violation, if there is none.
  const Commit* Find(const v1::FragmentHead& head);

  const Scenario* const scenario_;
  Violations* const violations_;
  // By process.
  std::vector<uint32_t> island_of_;
  // By fragment and version.
  std::vector<std::vector<Commit>> commits_;
  // The tokens in them.
  std::vector<std::vector<uint64_t>> merged_tokens_;
  uint64_t trained_tokens_ = 0;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_COMMIT_ACCOUNT_H_
