// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds what islands claim to have trained, which decides about their weight
// in a merge, by what the schedule lets an island train. A higher claim counts
// as the bound.
//
// All inner steps that an island contributes to a fragment are together at most
// those of the schedule since its join, and kSlackRounds rounds more, because
// it may repeat steps after a rebase; what it trains less is no credit beyond
// that. An island that joins again may repeat a round. Of an island that was
// known before the coordinator started, nothing is known until its next
// contribution is merged.
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
  // With ACCO, an island computes on while it communicates. Up to this many
  // times training.batch_size counts for an inner step.
  static constexpr uint64_t kMostBatches = 8;

  // `schedule` must outlive this object.
  Claims(const v1::RunConfig& config, const SyncSchedule* schedule);

  static constexpr int64_t kSlackRounds = 2;

  // The most inner steps of a contribution, and of a process: an island may
  // repeat steps after a rebase or a restart.
  uint64_t most_steps() const { return 2 * schedule_->total_steps(); }
  // Returns the most tokens that an island trains in `inner_steps`, up to
  // TokenLedger::kMost.
  uint64_t MostTokens(uint64_t inner_steps) const;

  // Returns `header` with possible numbers of steps and tokens.
  v1::ContributionHeader Bounded(v1::ContributionHeader header) const;

  // Notes a new incarnation of the island, which joins when the fragment is at
  // `version`.
  void Joined(const std::string& island_id, uint64_t incarnation,
              uint32_t fragment, uint64_t version);
  // Notes that the contribution, which came from its island, was merged.
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
  // By island and fragment: the step of the run at which the contributed steps
  // end if they are counted from the island's join, less slack_.
  std::map<std::pair<std::string, uint32_t>, int64_t> used_;
};

}  // namespace causeway

#endif  // SERVER_RULES_CLAIMS_H_
