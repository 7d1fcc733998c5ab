// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Many islands against one coordinator, on loopback: islands run in this
// process, the coordinator runs in another process, which is watched. The
// islands are real except for the model, whose steps cost nearly nothing.
#ifndef TESTS_LOAD_TRIAL_H_
#define TESTS_LOAD_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace causeway {

struct LoadOptions {
  // The folder with server/causeway-coordinator.
  std::string programs;
  // An empty directory for state and log.
  std::string directory;
  int islands = 0;
  // The number of rounds, each of one inner step.
  int rounds = 0;
  // The size of the model.
  int layers = 0;
  int hidden_size = 0;
};

// The cost to the coordinator of one round, from an island's step to its next.
struct RoundLoad {
  double seconds = 0;
  // The processor time, measured in hundredths of a second.
  double cpu_seconds = 0;
  // The processor time of all islands.
  double islands_cpu_seconds = 0;
  // The most memory, without mapped files.
  uint64_t peak_bytes = 0;
};

struct LoadResult {
  uint64_t parameters = 0;
  // The time from the first island's start until all have joined.
  double join_seconds = 0;
  double join_cpu_seconds = 0;
  std::vector<RoundLoad> rounds;
  // Memory before the first island, and with all islands before the first
  // round.
  uint64_t idle_bytes = 0;
  uint64_t joined_bytes = 0;
  // The bound of the memory for uploads and their codes.
  uint64_t staging_bytes = 0;
};

// Trains `rounds` rounds. INTERNAL if a round was merged without an island.
absl::StatusOr<LoadResult> RunRounds(const LoadOptions& options);

struct JoinersOptions {
  std::string programs;
  std::string directory;
  // The number of joiners that come together.
  int joiners = 0;
  // The rate in bytes per second that each asks for; 0 for no limit.
  double limit = 0;
  int layers = 0;
  int hidden_size = 0;
};

struct JoinersLoad {
  int joiners = 0;
  // The time from the first joiner's start to the last one's end.
  double seconds = 0;
  double cpu_seconds = 0;
  uint64_t bytes = 0;
  // Memory before the joiners, and the most while they are there.
  uint64_t before_bytes = 0;
  uint64_t peak_bytes = 0;
};

struct JoinersResult {
  uint64_t parameters = 0;
  // One joiner alone, then all of them.
  JoinersLoad alone;
  JoinersLoad together;
};

// Runs the joiners against a run that has finished one round, so that there is
// something to download.
absl::StatusOr<JoinersResult> RunJoiners(const JoinersOptions& options);

}  // namespace causeway

#endif  // TESTS_LOAD_TRIAL_H_
