// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The invariants of a run that has ended, from what its processes logged and
// what the state directory holds: every token that an island trained is merged
// at most once, none is lost while its island lives, and what was announced as
// committed is there.
//
// How it is known: a contribution says of how many inner steps it is, and an
// island logs each step. With mixing 0 the windows of an island's merged
// contributions to a fragment follow one another without gap or overlap. So
// their sum is never above the steps that the process has made, and not below
// those it had made when it sent the contribution before its last.
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

// One life of an island's process, by its log.
struct IslandLife {
  std::string island;
  // Of its membership when it began; those that follow, up to the next life's
  // first, are its own as well. 0 if it never joined.
  uint64_t incarnation = 0;
  // The inner steps that it has made, as numbered on the run's schedule.
  std::vector<uint64_t> steps;
  // Whether it ended in order, at the end of the run.
  bool survived = false;
};

// Of a worker that was started with --log_seconds=0.
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
  // Inner steps, summed over islands and fragments, that were trained by a
  // process which survived and had to be merged, but were not.
  uint64_t lost_steps = 0;
  // Those that were merged beyond what was trained.
  uint64_t double_counted_steps = 0;
  // Steps that died with their process before they were merged.
  uint64_t died_steps = 0;
  // Versions that the coordinator announced and the state directory has not.
  uint64_t lost_commits = 0;
  // What is wrong, for people.
  std::vector<std::string> findings;
};

// `rounds` are all of the run, in order of fragment and version; `lives` those
// of each island in order of time; `coordinator_log` that of all coordinators.
Accounts CheckAccounts(const SyncSchedule& schedule,
                       const std::vector<MergedRound>& rounds,
                       const std::vector<IslandLife>& lives,
                       absl::string_view coordinator_log);

}  // namespace causeway

#endif  // TESTS_CHAOS_ACCOUNTS_H_
