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
#include "proto/status.pb.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/violations.h"

namespace causeway::simulation {

// Returns "version 3 of fragment 0".
std::string NameOf(const v1::FragmentHead& head);

// Returns the validation loss of a model with these fragments, which depends on
// nothing but their values.
double LossOf(const std::vector<v1::FragmentHead>& heads);

class CommitAccount {
 public:
  // `scenario` and `violations` outlive the object.
  CommitAccount(const Scenario* scenario, Violations* violations);

  // Records a commit that has become durable. `record` is the record of its
  // merge, or null if there is none.
  void Add(const v1::FragmentHead& head, const MergeRecord* record);
  uint64_t newest_version(uint32_t fragment) const {
    return commits_[fragment].size() - 1;
  }
  // Returns whether every fragment has reached its last version.
  bool Complete(const SyncSchedule& schedule) const;

  // Checks that an announced version exists.
  void Heard(const v1::FragmentHead& head) { Find(head); }
  // Checks a measurement of the merged model.
  void CheckValidation(const v1::Validation& validation,
                       const SyncSchedule& schedule);
  // Checks the ledger at a version.
  void CheckLedger(const v1::TokenLedger& ledger, const v1::FragmentHead& head);

  // --- What islands do. ---

  // Registers a new process of `island`. Returns its number.
  uint32_t NewProcess(uint32_t island);
  // Returns the processes of `island` so far, in the order of their starts.
  std::vector<uint32_t> ProcessesOf(uint32_t island) const;
  void Trained(uint64_t tokens) { trained_tokens_ += tokens; }
  // Checks a fragment's replica in the process.
  void Holds(uint32_t process, const Replica& replica);

 private:
  // Returns null, and records a violation, if there is no such commit.
  const Version* Find(const v1::FragmentHead& head);

  const Scenario* const scenario_;
  Violations* const violations_;
  // The island of each process.
  std::vector<uint32_t> island_of_;
  // The commits, by fragment and version.
  std::vector<std::vector<Version>> commits_;
  // The tokens in each of them.
  std::vector<std::vector<uint64_t>> merged_tokens_;
  uint64_t trained_tokens_ = 0;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_COMMIT_ACCOUNT_H_
