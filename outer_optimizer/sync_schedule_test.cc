// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/sync_schedule.h"

#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Send = SyncSchedule::Send;

std::vector<Send> AllSends(const SyncSchedule& schedule) {
  std::vector<Send> sends;
  for (uint64_t step = 0; step <= schedule.total_steps() + 5; ++step) {
    for (const Send& send : schedule.SendsAt(step)) sends.push_back(send);
  }
  return sends;
}

TEST(SyncScheduleTest, OneFragmentWithoutOverlapIsDiLoCo) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 10, .send_offsets = {0}, .total_steps = 30}));
  EXPECT_THAT(AllSends(schedule),
              ElementsAre(Send{0, 10, 1}, Send{0, 20, 2}, Send{0, 30, 3}));
  EXPECT_EQ(schedule.ApplyStep(20), 20u);
  EXPECT_EQ(schedule.TotalRounds(), 3u);
}

TEST(SyncScheduleTest, ARestOfARoundIsSentAtTheEnd) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 10, .send_offsets = {0}, .total_steps = 21}));
  EXPECT_THAT(AllSends(schedule),
              ElementsAre(Send{0, 10, 1}, Send{0, 20, 2}, Send{0, 21, 3}));
}

TEST(SyncScheduleTest, FragmentsTakeTurns) {
  ASSERT_OK_AND_ASSIGN(const SyncSchedule schedule,
                       SyncSchedule::Create({.round_steps = 10,
                                             .send_offsets = {0, 3, 6},
                                             .overlap_steps = 4,
                                             .total_steps = 26}));
  // Fragment 2 is sent at 16 and, regularly, at 26, the last step. The others
  // are sent once more at 26, with the training since 20 and 23.
  EXPECT_THAT(AllSends(schedule),
              ElementsAre(Send{0, 10, 1}, Send{1, 13, 1}, Send{2, 16, 1},
                          Send{0, 20, 2}, Send{1, 23, 2}, Send{0, 26, 3},
                          Send{1, 26, 3}, Send{2, 26, 2}));
  EXPECT_EQ(schedule.FinalVersion(0), 3u);
  EXPECT_EQ(schedule.FinalVersion(2), 2u);
  EXPECT_EQ(schedule.TotalRounds(), 8u);
  EXPECT_EQ(schedule.ApplyStep(16), 20u);
  // Updates are applied by the last step.
  EXPECT_EQ(schedule.ApplyStep(23), 26u);
  EXPECT_EQ(schedule.ApplyStep(26), 26u);
}

TEST(SyncScheduleTest, AVersionOfTheModelHasEveryFragmentAtIt) {
  // The last versions are 3, 3 and 2.
  ASSERT_OK_AND_ASSIGN(const SyncSchedule schedule,
                       SyncSchedule::Create({.round_steps = 10,
                                             .send_offsets = {0, 3, 6},
                                             .overlap_steps = 4,
                                             .total_steps = 26}));
  struct Case {
    std::vector<uint64_t> versions;
    uint64_t version;
    bool is_whole;
  };
  for (const Case& each : std::vector<Case>{{{0, 0, 0}, 0, true},
                                            {{1, 0, 0}, 0, false},
                                            {{1, 1, 1}, 1, true},
                                            {{2, 2, 1}, 1, false},
                                            {{2, 2, 2}, 2, true},
                                            {{3, 2, 2}, 2, false},
                                            {{1, 2, 2}, 1, false},
                                            {{3, 3, 1}, 1, false},
                                            {{3, 3, 2}, 3, true}}) {
    EXPECT_EQ(schedule.ModelVersion(each.versions), each.version);
    EXPECT_EQ(schedule.IsModelVersion(each.versions), each.is_whole)
        << each.version;
  }
  EXPECT_EQ(schedule.FinalModelVersion(), 3u);
}

TEST(SyncScheduleTest, ARunShorterThanARoundIsOneRound) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 100, .send_offsets = {0, 50}, .total_steps = 7}));
  EXPECT_THAT(AllSends(schedule), ElementsAre(Send{0, 7, 1}, Send{1, 7, 1}));
}

TEST(SyncScheduleTest, EveryStepIsARoundWithH1) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 1, .send_offsets = {0, 0}, .total_steps = 2}));
  EXPECT_THAT(AllSends(schedule), ElementsAre(Send{0, 1, 1}, Send{1, 1, 1},
                                              Send{0, 2, 2}, Send{1, 2, 2}));
}

TEST(SyncScheduleTest, NothingFollowsTheEnd) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 10, .send_offsets = {0, 5}, .total_steps = 30}));
  EXPECT_EQ(schedule.NextSend(0, 30), std::nullopt);
  EXPECT_EQ(schedule.NextSend(1, 1000), std::nullopt);
  EXPECT_THAT(schedule.SendsAt(0), IsEmpty());
  EXPECT_THAT(schedule.SendsAt(31), IsEmpty());
}

TEST(SyncScheduleTest, PositionIsTheLatestRoundSeen) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 10, .send_offsets = {0, 5}, .total_steps = 33}));
  EXPECT_EQ(schedule.RunPosition({0, 0}), 0u);
  EXPECT_EQ(schedule.RunPosition({1, 0}), 10u);
  EXPECT_EQ(schedule.RunPosition({1, 1}), 15u);
  EXPECT_EQ(schedule.RunPosition({2, 1}), 20u);
  EXPECT_EQ(schedule.RunPosition({3, 3}), 33u);
  EXPECT_EQ(schedule.RunPosition({4, 3}), 33u);
}

TEST(SyncScheduleTest, ClampsAStepToWhereTheVersionsAre) {
  ASSERT_OK_AND_ASSIGN(
      const SyncSchedule schedule,
      SyncSchedule::Create(
          {.round_steps = 10, .send_offsets = {0, 5}, .total_steps = 33}));
  // Versions (1, 1) contain training up to step 15; the next send is at 20.
  EXPECT_EQ(schedule.ClampToVersions(0, {1, 1}), 15u);
  EXPECT_EQ(schedule.ClampToVersions(17, {1, 1}), 17u);
  EXPECT_EQ(schedule.ClampToVersions(30, {1, 1}), 19u);
  EXPECT_EQ(schedule.ClampToVersions(3, {0, 0}), 3u);
  EXPECT_EQ(schedule.ClampToVersions(12, {0, 0}), 9u);
  // The run is over.
  EXPECT_EQ(schedule.ClampToVersions(33, {4, 3}), 33u);
}

TEST(SyncScheduleTest, IsReadFromConfigAndPlan) {
  v1::RunConfig config;
  config.mutable_synchronization()->set_inner_steps_per_round(8);
  config.mutable_synchronization()->set_overlap_steps(3);
  config.mutable_training()->set_total_steps(20);
  v1::FragmentPlan plan;
  plan.add_fragments();
  plan.add_fragments()->set_send_offset_steps(4);
  ASSERT_OK_AND_ASSIGN(const SyncSchedule schedule,
                       SyncSchedule::Create(config, plan));
  EXPECT_EQ(schedule.fragments(), 2u);
  EXPECT_EQ(schedule.round_steps(), 8u);
  EXPECT_EQ(schedule.overlap_steps(), 3u);
  EXPECT_EQ(schedule.total_steps(), 20u);
  EXPECT_TRUE(schedule.IsSentAt(1, 12));
}

TEST(SyncScheduleTest, HoldsTheRuleForAllSmallNumbers) {
  for (uint64_t round = 1; round <= 6; ++round) {
    for (uint64_t offset = 0; offset < round; ++offset) {
      for (uint64_t total = 1; total <= 20; ++total) {
        ASSERT_OK_AND_ASSIGN(const SyncSchedule schedule,
                             SyncSchedule::Create({.round_steps = round,
                                                   .send_offsets = {offset},
                                                   .total_steps = total}));
        uint64_t version = 0;
        uint64_t last_send = 0;
        for (uint64_t step = 0; step <= total; ++step) {
          const bool regular =
              step >= round + offset && (step - offset) % round == 0;
          const bool sent = regular || step == total;
          ASSERT_EQ(schedule.IsSentAt(0, step), sent)
              << round << " " << offset << " " << total << " " << step;
          if (!sent) continue;
          const std::optional<Send> next = schedule.NextSend(0, last_send);
          ++version;
          ASSERT_EQ(next, (Send{0, step, version}));
          ASSERT_EQ(schedule.StepOfVersion(0, version), step);
          last_send = step;
        }
        ASSERT_EQ(schedule.FinalVersion(0), version);
        ASSERT_EQ(schedule.StepOfVersion(0, 0), 0u);
        ASSERT_EQ(schedule.StepOfVersion(0, version + 1), total);
      }
    }
  }
}

TEST(SyncScheduleTest, RefusesWhatCannotBe) {
  const auto expect_refused = [](SyncSchedule::Options options,
                                 const char* why) {
    EXPECT_THAT(SyncSchedule::Create(std::move(options)),
                IsInvalidArgument(why));
  };
  expect_refused({.send_offsets = {0}, .total_steps = 5},
                 "inner_steps_per_round is 0");
  expect_refused({.round_steps = 5, .send_offsets = {0}}, "total_steps is 0");
  expect_refused({.round_steps = 5, .total_steps = 5}, "no fragments");
  expect_refused({.round_steps = 5,
                  .send_offsets = {0},
                  .overlap_steps = 5,
                  .total_steps = 5},
                 "overlap_steps is 5, want less than");
  expect_refused({.round_steps = 5, .send_offsets = {0, 5}, .total_steps = 5},
                 "offset of fragment 1 is 5, want less than");
}

}  // namespace
}  // namespace causeway
