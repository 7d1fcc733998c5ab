// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run of the chaos kit shows, from what was seen of it, the logs of its
// processes and the state directory.
#ifndef TESTS_CHAOS_EVALUATION_H_
#define TESTS_CHAOS_EVALUATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/chaos/accounts.h"

namespace causeway {

struct ChaosResult {
  // Tokens of the islands, guests left out, that were merged in the run,
  // each fragment by its share of the parameters; per second.
  double merged_tokens_per_second = 0;
  // Contributions in merged rounds, by live islands when they closed.
  double participation = 0;
  Accounts accounts;
  // Rounds merged in all.
  uint64_t rounds = 0;
  // From the kill of a coordinator to the first commit of the next.
  std::vector<absl::Duration> restarts;
  // From the kill of an island to the next commit.
  std::vector<absl::Duration> commits_after_kill;
  // From the start of a guest to the first commit it is part of.
  std::vector<absl::Duration> guests_merged;
  // By how many inner steps the islands stood still in that time beyond what
  // they did in as much time before it; the most of any island.
  std::vector<double> guest_pauses;
};

// A run that has ended.
struct ChaosRecord {
  // The logs of an island's processes, oldest first.
  struct IslandLogs {
    std::string island;
    std::vector<std::string> texts;
  };
  // What a coordinator's line about a commit tells.
  struct Commit {
    std::string line;
    absl::Time seen;
  };

  std::string state_directory;
  // What is measured lies between the two.
  absl::Time begin;
  absl::Time end;
  // Of an inner step, simulated.
  absl::Duration step_time;
  // With the guest's.
  std::vector<IslandLogs> islands;
  // The name of the island that comes and goes.
  std::string guest;
  // Of all its processes.
  std::string coordinator_log;
  std::vector<Commit> commits;
  std::vector<absl::Time> island_kills;
  std::vector<absl::Time> coordinator_kills;
  std::vector<absl::Time> guest_starts;
};

// Errors of StateDirectory::OpenReadOnly and of reading its log.
absl::StatusOr<ChaosResult> Evaluate(const ChaosRecord& record);

}  // namespace causeway

#endif  // TESTS_CHAOS_EVALUATION_H_
