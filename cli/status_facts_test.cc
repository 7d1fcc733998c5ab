// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_facts.h"

#include "absl/time/time.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

TEST(StatusFactsTest, TheTimeLeftIsThatOfTheCoordinator) {
  v1::RunStatus run;
  run.set_state(v1::RUNNING);
  run.set_run_step(240);
  run.set_total_steps(400);
  run.set_live_islands(2);
  run.set_tokens_per_second(4096);
  EXPECT_EQ(ProgressFact(run), "step 240 of 400 (60 %), round 0 of 0");
  EXPECT_EQ(Ratio(3549, 3552), "3549 of 3552 (99 %)");
  EXPECT_EQ(Ratio(3552, 3552), "3552 of 3552 (100 %)");
  run.set_seconds_left(80);
  EXPECT_THAT(ProgressFact(run), HasSubstr(", about 1 min 20 s left"));
}

TEST(StatusFactsTest, AProblemHasItsAgeAndTheNextStep) {
  v1::Attention problem;
  problem.set_severity(v1::CRITICAL);
  problem.set_text("no round is merged");
  *problem.mutable_since() = ToTimestamp(kNow - absl::Seconds(90));
  EXPECT_EQ(ProblemText(problem, kNow),
            "critical for 1 min 30 s: no round is merged");
  EXPECT_EQ(NextStep(problem), "");
  problem.set_command("causeway fragments");
  EXPECT_EQ(NextStep(problem), "next: `causeway fragments`");
}

TEST(StatusFactsTest, AnUnreportedRateIsNotZero) {
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

TEST(StatusFactsTest, ShowsBitsThatWouldArriveInTimeInBrackets) {
  v1::IslandStatus island;
  EXPECT_EQ(UplinkBitsText(island), "-");
  island.mutable_progress()->set_uplink_bits(1.55);
  EXPECT_EQ(UplinkBitsText(island), "1.55");
  island.set_uplink_bits_in_time(1.7345);
  EXPECT_EQ(UplinkBitsText(island), "1.55 (1.73)");
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

TEST(StatusFactsTest, OfManyIslandsTheFirstAreNamed) {
  v1::FragmentStatus fragment;
  for (const char* const name : {"a", "b", "c"}) fragment.add_awaited(name);
  EXPECT_EQ(FirstOf(fragment.awaited()), "a,b,c");
  for (int i = 3; i < 40; ++i) fragment.add_awaited("d");
  EXPECT_EQ(FirstOf(fragment.awaited()), "a,b,c and 37 more");
}

TEST(StatusFactsTest, StatesAreWords) {
  v1::RunStatus run;
  run.set_state(v1::RUNNING);
  EXPECT_EQ(StateText(run, kNow), "running");
  run.add_attention()->set_severity(v1::WARNING);
  EXPECT_EQ(StateText(run, kNow), "running");
  run.mutable_attention(0)->set_severity(v1::CRITICAL);
  EXPECT_EQ(StateText(run, kNow), "standing still");
  *run.mutable_missing_since() = ToTimestamp(kNow - absl::Seconds(336));
  EXPECT_EQ(StateText(run, kNow), "waiting for islands for 5 min 36 s");
  run.set_state(v1::SUSPENDED);
  run.clear_missing_since();
  EXPECT_EQ(StateText(run, kNow), "suspended");
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
