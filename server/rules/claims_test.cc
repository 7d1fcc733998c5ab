// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/claims.h"

#include <limits>

#include "common/config/run_config.h"
#include "gtest/gtest.h"
#include "server/rules/token_ledger.h"

namespace causeway {
namespace {

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kRoundSteps = 10;
constexpr uint64_t kStepTokens = 32;
constexpr uint64_t kSlack = Claims::kSlackRounds * kRoundSteps;

class ClaimsTest : public testing::Test {
 protected:
  static v1::RunConfig Config() {
    v1::RunConfig config;
    config.mutable_training()->set_batch_size(4);
    config.mutable_model()->set_sequence_length(8);
    return config;
  }

  static v1::ContributionHeader Claim(uint64_t base_version,
                                      uint64_t steps = kAll,
                                      uint64_t tokens = kAll) {
    v1::ContributionHeader header;
    header.mutable_identity()->set_island_id("east");
    header.set_base_version(base_version);
    header.set_inner_steps(steps);
    header.set_tokens(tokens);
    header.set_restored_tokens(tokens);
    return header;
  }

  // Expects that an impossible claim counts as `steps` inner steps.
  void ExpectBound(uint64_t base_version, uint64_t steps) {
    const v1::ContributionHeader header = claims_.Bounded(Claim(base_version));
    EXPECT_EQ(header.inner_steps(), steps);
    EXPECT_EQ(header.tokens(), steps * kStepTokens);
    EXPECT_EQ(header.restored_tokens(), steps * kStepTokens);
  }

  const SyncSchedule schedule_ = *SyncSchedule::Create(
      {.round_steps = kRoundSteps, .send_offsets = {0}, .total_steps = 95});
  Claims claims_{Config(), &schedule_};
};

TEST_F(ClaimsTest, StepsAreBoundByTheScheduleAndTheSlack) {
  claims_.Joined("east", 1, 0, 2);
  ExpectBound(3, 2 * kRoundSteps + kSlack);
  claims_.Merged(claims_.Bounded(Claim(3)));
  // Once the slack is used, each round has its own steps only.
  for (uint64_t base_version = 4; base_version < 7; ++base_version) {
    ExpectBound(base_version, kRoundSteps);
    claims_.Merged(claims_.Bounded(Claim(base_version)));
  }
  // It misses two rounds.
  ExpectBound(9, 2 * kRoundSteps + 5);
}

TEST_F(ClaimsTest, UnusedStepsCannotBeSavedBeyondTheSlack) {
  claims_.Joined("east", 1, 0, 0);
  for (uint64_t base_version = 0; base_version < 6; ++base_version) {
    claims_.Merged(Claim(base_version, 1));
  }
  ExpectBound(6, kRoundSteps + kSlack);
}

TEST_F(ClaimsTest, PossibleClaimsCountUnchanged) {
  claims_.Joined("east", 1, 0, 0);
  const v1::ContributionHeader header = claims_.Bounded(Claim(0, 7, 200));
  EXPECT_EQ(header.inner_steps(), 7);
  EXPECT_EQ(header.tokens(), 200);
  EXPECT_EQ(claims_.Bounded(Claim(0, 7, 225)).tokens(), 7 * kStepTokens);
}

TEST_F(ClaimsTest, AnIslandThatJoinsAgainMayRepeatAWindow) {
  claims_.Joined("east", 1, 0, 0);
  claims_.Merged(claims_.Bounded(Claim(4)));
  claims_.Joined("east", 2, 0, 5);
  ExpectBound(5, 2 * kRoundSteps);
  claims_.Merged(claims_.Bounded(Claim(5)));
  ExpectBound(6, kRoundSteps);
}

TEST_F(ClaimsTest, AnIslandFromBeforeARestartIsBoundByTheRunsLength) {
  claims_.Joined("east", 2, 0, 5);
  ExpectBound(5, 6 * kRoundSteps + kSlack);
  claims_.Merged(claims_.Bounded(Claim(5)));
  ExpectBound(6, kRoundSteps + kSlack);
}

TEST_F(ClaimsTest, TokensOfAStepDependOnTheInnerAlgorithm) {
  v1::RunConfig config = Config();
  config.mutable_training()->set_inner_algorithm(v1::TrainingConfig::ACCO);
  EXPECT_EQ(Claims(config, &schedule_).MostTokens(3),
            3 * kStepTokens * kMostBatchesPerStep);
  config.mutable_training()->set_fixed_micro_batches(true);
  EXPECT_EQ(Claims(config, &schedule_).MostTokens(3), 3 * kStepTokens * 2);
  EXPECT_EQ(claims_.MostTokens(kAll), TokenLedger::kMost);
}

}  // namespace
}  // namespace causeway
