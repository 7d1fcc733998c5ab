// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Many islands against one coordinator, on loopback: islands in this process,
// the coordinator in another one that is watched. The islands are real ones
// but for the model, whose steps cost nearly nothing.
#ifndef TESTS_LOAD_TRIAL_H_
#define TESTS_LOAD_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace causeway {

struct LoadOptions {
  // Has server/causeway-coordinator.
  std::string programs;
  // An empty directory for state and log.
  std::string directory;
  int islands = 0;
  // Of one inner step each.
  int rounds = 0;
  // Size of the model.
  int layers = 0;
  int hidden_size = 0;
};

// What one round, from an island's step to its next, cost the coordinator.
struct RoundLoad {
  double seconds = 0;
  // Processor time, counted in hundredths of a second.
  double cpu_seconds = 0;
  // The most memory that is not mapped from files.
  uint64_t peak_bytes = 0;
};

struct LoadResult {
  uint64_t parameters = 0;
  // From the first island's start until all have joined.
  double join_seconds = 0;
  double join_cpu_seconds = 0;
  std::vector<RoundLoad> rounds;
  // Before any island has come, and with all of them there, before the first
  // round.
  uint64_t idle_bytes = 0;
  uint64_t joined_bytes = 0;
  // Bound of the memory for uploads (storage.max_staging_bytes).
  uint64_t staging_bytes = 0;
};

// Trains `rounds` rounds. INTERNAL if a round was merged without an island.
absl::StatusOr<LoadResult> RunRounds(const LoadOptions& options);

struct JoinersOptions {
  std::string programs;
  std::string directory;
  // That come together.
  int joiners = 0;
  // Bytes per second that each asks for; 0: as fast as they come.
  double limit = 0;
  int layers = 0;
  int hidden_size = 0;
};

struct JoinersLoad {
  int joiners = 0;
  // From the first one's start to the last one's end.
  double seconds = 0;
  double cpu_seconds = 0;
  uint64_t bytes = 0;
  // Memory before, and the most meanwhile.
  uint64_t before_bytes = 0;
  uint64_t peak_bytes = 0;
};

struct JoinersResult {
  uint64_t parameters = 0;
  // One joiner alone, then all of them.
  JoinersLoad alone;
  JoinersLoad together;
};

// Lets them join a run that has been through one round, so that there is
// something to download.
absl::StatusOr<JoinersResult> RunJoiners(const JoinersOptions& options);

}  // namespace causeway

#endif  // TESTS_LOAD_TRIAL_H_
