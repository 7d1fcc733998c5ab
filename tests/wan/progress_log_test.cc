// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/progress_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

std::string StepLine(absl::string_view time, int step, double waited) {
  return absl::StrFormat(
      "I20261121 11:05:%s 15790 island.cc:245] step %d/6  loss 5.5  gradient "
      "1.0  lr 1.0e-04  0 tokens/s  up 0.0 MiB  down 0.0 MiB  waited %.3f s\n",
      time, step, waited);
}

// Returns a log of rounds with 2 steps: 100 ms a step, and 300 ms of waiting
// after each round.
std::string Log() {
  return absl::StrCat(
      "I20261121 11:05:46.900000 15790 island.cc:60] joined, step 0 of 6\n",
      StepLine("47.100000", 1, 0), StepLine("47.200000", 2, 0),
      "W20261121 11:05:47.300000 15790 outer_loop.cc:99] step back\n",
      StepLine("47.600000", 3, 0.3), StepLine("47.700000", 4, 0.3),
      StepLine("48.100000", 5, 0.6), StepLine("48.200000", 6, 0.6),
      "I20261121 11:05:48.500000 15790 island.cc:188] the run is finished at "
      "step 6; training stood still for 900ms in all\nI2026");
}

TEST(ProgressLogTest, FindsTheStepsAmongOtherLines) {
  const std::vector<LoggedStep> steps = ParseProgressLog(Log());
  ASSERT_EQ(steps.size(), 6);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[5].step, 6);
  EXPECT_EQ(steps[5].time - steps[0].time, absl::Milliseconds(1100));
  EXPECT_EQ(steps[5].waited, absl::Milliseconds(600));
  EXPECT_TRUE(ParseProgressLog("").empty());
}

TEST(ProgressLogTest, SpeedCountsAsManyWaitsAsRounds) {
  const std::vector<LoggedStep> steps = ParseProgressLog(Log());
  // Two rounds each have 0.2 s of steps and 0.3 s of waiting.
  ASSERT_OK_AND_ASSIGN(const IslandSpeed speed, MeasureSpeed(steps, 2));
  EXPECT_NEAR(speed.training_share, 0.4, 1e-9);
  EXPECT_NEAR(speed.steps_per_second, 4, 1e-9);
}

TEST(ProgressLogTest, AnUnfinishedRoundIsLeftOut) {
  const std::vector<LoggedStep> steps = ParseProgressLog(Log());
  ASSERT_OK_AND_ASSIGN(const IslandSpeed whole,
                       MeasureSpeed({steps.begin(), steps.begin() + 4}, 2));
  ASSERT_OK_AND_ASSIGN(const IslandSpeed cut,
                       MeasureSpeed({steps.begin(), steps.begin() + 5}, 2));
  EXPECT_EQ(cut.training_share, whole.training_share);
  EXPECT_EQ(cut.steps_per_second, whole.steps_per_second);
}

TEST(ProgressLogTest, LessThanTwoRoundsAreNoMeasurement) {
  const std::vector<LoggedStep> steps = ParseProgressLog(Log());
  EXPECT_THAT(MeasureSpeed({steps.begin(), steps.begin() + 3}, 2),
              IsFailedPrecondition("rounds of 2 steps"));
  EXPECT_FALSE(MeasureSpeed({}, 2).ok());
}

}  // namespace
}  // namespace causeway
