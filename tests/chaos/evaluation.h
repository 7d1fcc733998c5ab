// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Evaluates a run of the chaos kit from the kit's observations, the logs of its
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
  // Merged tokens per second of the islands without guests; each fragment
  // counts by its share of the parameters.
  double merged_tokens_per_second = 0;
  // Contributions in merged rounds, over the live islands when they closed.
  double participation = 0;
  Accounts accounts;
  // The number of merged rounds.
  uint64_t rounds = 0;
  // Times from the kill of a coordinator to the first commit of the next.
  std::vector<absl::Duration> restarts;
  // Times from the kill of an island to the next commit.
  std::vector<absl::Duration> commits_after_kill;
  // Times from the start of a guest to the first commit that includes it.
  std::vector<absl::Duration> guests_merged;
  // The inner steps by which an island stood still longer in that time than in
  // as long a time before; the most of any island.
  std::vector<double> guest_pauses;
};

// The record of a run that has ended.
struct ChaosRecord {
  // The logs of an island's processes, oldest first.
  struct IslandLogs {
    std::string island;
    std::vector<std::string> texts;
  };
  // A coordinator's log line about a commit.
  struct Commit {
    std::string line;
    absl::Time seen;
  };

  std::string state_directory;
  // Measurements cover the time between these two.
  absl::Time begin;
  absl::Time end;
  // The simulated time of an inner step.
  absl::Duration step_time;
  // All islands, with the guest.
  std::vector<IslandLogs> islands;
  // The name of the island that comes and goes.
  std::string guest;
  // The logs of all its processes.
  std::string coordinator_log;
  std::vector<Commit> commits;
  std::vector<absl::Time> island_kills;
  std::vector<absl::Time> coordinator_kills;
  std::vector<absl::Time> guest_starts;
};

// Evaluates a run. Errors of StateDirectory::OpenReadOnly and of reading its
// log.
absl::StatusOr<ChaosResult> Evaluate(const ChaosRecord& record);

}  // namespace causeway

#endif  // TESTS_CHAOS_EVALUATION_H_
