// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds what islands claim to have trained by what the schedule allows,
// because the claims decide an island's weight in a merge. A higher claim
// counts as the bound.
//
// An island contributes to a fragment at most the schedule's inner steps since
// its join, plus kSlackRounds rounds, because it may repeat steps after a
// rebase. Unused steps cannot be saved beyond this slack. An island that joins
// again may repeat a round. If an island was known before the coordinator
// started, its count begins with its next merged contribution.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_CLAIMS_H_
#define SERVER_RULES_CLAIMS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

class Claims {
 public:
  // `schedule` must outlive this object.
  Claims(const v1::RunConfig& config, const SyncSchedule* schedule);

  static constexpr int64_t kSlackRounds = 2;

  // Returns the most inner steps of a contribution, and of a process: an island
  // may repeat steps after a rebase or a restart.
  uint64_t most_steps() const { return 2 * schedule_->total_steps(); }
  // Returns the most tokens that an island trains in `inner_steps`, up to
  // TokenLedger::kMost.
  uint64_t MostTokens(uint64_t inner_steps) const;

  // Returns `header` with its steps and tokens bounded.
  v1::ContributionHeader Bounded(v1::ContributionHeader header) const;

  // Notes a new incarnation of the island, which joins when the fragment is at
  // `version`.
  void Joined(const std::string& island_id, uint64_t incarnation,
              uint32_t fragment, uint64_t version);
  void Merged(const v1::ContributionHeader& header);

 private:
  // Returns the step of the run at which the round that starts from
  // `base_version` is sent.
  int64_t SendStep(uint32_t fragment, uint64_t base_version) const {
    return static_cast<int64_t>(
        schedule_->StepOfVersion(fragment, base_version + 1));
  }

  const SyncSchedule* const schedule_;
  // The most tokens of an inner step.
  double step_tokens_;
  int64_t slack_;
  // Maps island and fragment to the step of the run that the contributed steps
  // reach, counted from the island's join, minus slack_.
  std::map<std::pair<std::string, uint32_t>, int64_t> used_;
};

}  // namespace causeway

#endif  // SERVER_RULES_CLAIMS_H_
