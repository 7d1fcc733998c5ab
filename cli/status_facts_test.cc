// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_facts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(StatusFactsTest, TimeLeftNeedsSpeed) {
  v1::RunStatus run;
  run.mutable_config()->mutable_training()->set_batch_size(8);
  run.mutable_config()->mutable_model()->set_sequence_length(128);
  run.set_run_step(240);
  run.set_total_steps(400);
  run.set_live_islands(2);
  run.set_tokens_per_second(4096);
  // 160 steps of 1024 tokens on each of two islands.
  EXPECT_EQ(TimeLeft(run), absl::Seconds(80));
  run.set_run_step(500);
  EXPECT_EQ(TimeLeft(run), absl::ZeroDuration());
  run.set_tokens_per_second(0);
  EXPECT_EQ(TimeLeft(run), absl::InfiniteDuration());
}

TEST(StatusFactsTest, ARateThatNobodyHasReportedIsNotZero) {
  v1::RunStatus run;
  EXPECT_EQ(TrainingFact(run), "0 islands, 0 tokens merged");
  run.set_tokens_per_second(1234);
  EXPECT_THAT(TrainingFact(run), HasSubstr(", 1.23k tokens/s,"));
  v1::IslandStatus island;
  island.set_state(v1::IslandStatus::LIVE);
  EXPECT_EQ(TrainingRate(island), "-");
  island.mutable_progress()->set_tokens_per_second(1234);
  EXPECT_EQ(TrainingRate(island), "1.23k");
  island.set_state(v1::IslandStatus::LEFT);
  EXPECT_EQ(TrainingRate(island), "-");
}

TEST(StatusFactsTest, WithoutOverlapNothingIsLate) {
  v1::IslandProgress progress;
  progress.set_late_updates(2);
  EXPECT_EQ(Lateness(progress), "-");
  progress.set_overlap_steps(5);
  EXPECT_EQ(Lateness(progress), "2");
  progress.set_overrun_steps(7);
  EXPECT_EQ(Lateness(progress), "2 (+7)");
}

TEST(StatusFactsTest, ParticipantsAreThoseOfTheLiveIslands) {
  v1::Participation round;
  round.set_live(4);
  round.set_contributing(4);
  round.set_merged(4);
  EXPECT_EQ(Participants(round), "4 of 4");
  round.set_contributing(3);
  round.set_merged(2);
  EXPECT_EQ(Participants(round), "2 of 4 (3 began)");
}

TEST(StatusFactsTest, StatesAreWords) {
  EXPECT_EQ(StateText(v1::WAITING_FOR_ISLANDS), "waiting for islands");
  v1::IslandStatus island;
  island.set_state(v1::IslandStatus::LIVE);
  island.set_draining(true);
  EXPECT_EQ(StateText(island), "draining");
  island.set_draining(false);
  island.set_data_differs(true);
  EXPECT_EQ(StateText(island), "live, other data");
  island.set_data_differs(false);
  island.set_state(v1::IslandStatus::EVICTED);
  EXPECT_EQ(StateText(island), "evicted");
}

}  // namespace
}  // namespace causeway
