// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks the invariants of a run that has ended, from its processes' logs and
// the state directory: every token that an island trained is merged at most
// once, none is lost while its island lives, and every commit that was
// announced exists.
//
// A contribution says how many inner steps it contains, and an island logs each
// step. The windows of an island's merged contributions to a fragment follow
// one another without gap or overlap. So their sum is never above the steps
// that the process has made, and not below those it had made when it sent the
// contribution before its last.
#ifndef TESTS_CHAOS_ACCOUNTS_H_
#define TESTS_CHAOS_ACCOUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "outer_optimizer/sync_schedule.h"
#include "server/storage/commit_log.h"

namespace causeway {

// One life of an island's process, as its log shows it.
struct IslandLife {
  std::string island;
  // The first incarnation of this life, which also owns the following ones, up
  // to the next life's first; 0 if the process never joined.
  uint64_t incarnation = 0;
  // The inner steps that it has made, numbered on the run's schedule.
  std::vector<uint64_t> steps;
  // Is true if the process ended in order at the end of the run.
  bool survived = false;
};

// Reads the log of a worker that was started with --log_seconds=0.
IslandLife ReadLife(absl::string_view island, absl::string_view log,
                    bool survived);

// One committed version.
struct MergedRound {
  uint32_t fragment = 0;
  uint64_t version = 0;
  absl::Time at;
  std::vector<ContributionRecord> contributions;
};

struct Accounts {
  // Inner steps, summed over islands and fragments, that a surviving process
  // trained and that had to be merged, but were not.
  uint64_t lost_steps = 0;
  // Steps that were merged beyond what was trained.
  uint64_t double_counted_steps = 0;
  // Steps that died with their process before they were merged.
  uint64_t died_steps = 0;
  // Announced versions that the state directory does not have.
  uint64_t lost_commits = 0;
  // Descriptions of the violations, for people.
  std::vector<std::string> findings;
};

// Checks a run. `rounds` has all its versions, in order of fragment and
// version; `lives` has each island's lives in order of time; `coordinator_log`
// is the log of all coordinators.
Accounts CheckAccounts(const SyncSchedule& schedule,
                       const std::vector<MergedRound>& rounds,
                       const std::vector<IslandLife>& lives,
                       absl::string_view coordinator_log);

}  // namespace causeway

#endif  // TESTS_CHAOS_ACCOUNTS_H_
