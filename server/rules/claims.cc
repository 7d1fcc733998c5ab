// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/claims.h"

#include <algorithm>

#include "common/config/run_config.h"
#include "server/rules/token_ledger.h"

namespace causeway {
namespace {

double MostBatches(const v1::TrainingConfig& training) {
  if (training.inner_algorithm() == v1::TrainingConfig::DDP) return 1;
  // A rank whose part of the batch is one micro-batch makes one in each half.
  return training.fixed_micro_batches() ? 2 : kMostBatchesPerStep;
}

}  // namespace

Claims::Claims(const v1::RunConfig& config, const SyncSchedule* schedule)
    : schedule_(schedule),
      slack_(kSlackRounds * static_cast<int64_t>(schedule->round_steps())) {
  step_tokens_ = MostBatches(config.training()) *
                 static_cast<double>(TokensPerStep(config));
}

uint64_t Claims::MostTokens(uint64_t inner_steps) const {
  const double tokens = static_cast<double>(inner_steps) * step_tokens_;
  return tokens < static_cast<double>(TokenLedger::kMost)
             ? static_cast<uint64_t>(tokens)
             : TokenLedger::kMost;
}

v1::ContributionHeader Claims::Bounded(v1::ContributionHeader header) const {
  const auto used =
      used_.find({header.identity().island_id(), header.fragment()});
  const int64_t steps = SendStep(header.fragment(), header.base_version()) -
                        (used == used_.end() ? -slack_ : used->second);
  header.set_inner_steps(
      std::min(header.inner_steps(),
               static_cast<uint64_t>(std::max<int64_t>(steps, 1))));
  header.set_tokens(
      std::min(header.tokens(), MostTokens(header.inner_steps())));
  header.set_restored_tokens(
      std::min(header.restored_tokens(), header.tokens()));
  return header;
}

void Claims::Joined(const std::string& island_id, uint64_t incarnation,
                    uint32_t fragment, uint64_t version) {
  const auto used = used_.find({island_id, fragment});
  if (used != used_.end()) {
    used->second -= static_cast<int64_t>(schedule_->round_steps());
  } else if (incarnation == 1) {
    used_[{island_id, fragment}] =
        static_cast<int64_t>(schedule_->StepOfVersion(fragment, version)) -
        slack_;
  }
}

void Claims::Merged(const v1::ContributionHeader& header) {
  const int64_t least =
      SendStep(header.fragment(), header.base_version()) - slack_;
  const auto [used, is_new] = used_.try_emplace(
      {header.identity().island_id(), header.fragment()}, least);
  if (is_new) return;
  used->second = std::max(
      used->second + static_cast<int64_t>(header.inner_steps()), least);
}

}  // namespace causeway
