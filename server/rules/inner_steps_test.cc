// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/inner_steps.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr absl::Duration kOne = absl::Seconds(1);

TEST(InnerStepsTest, AnIslandThatIsInTimeTrainsAllSteps) {
  const InnerStepsOptions options{.steps = 100, .grace = absl::Seconds(100)};
  EXPECT_EQ(InnerSteps(options, kOne, {kOne, kOne}), 0);
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {kOne, 2 * kOne}), 0);
}

TEST(InnerStepsTest, AnIslandThatIsAlwaysLateTrainsAShare) {
  const InnerStepsOptions options{.steps = 100, .grace = absl::Seconds(99)};
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {kOne, 2 * kOne}), 50);
  EXPECT_EQ(InnerSteps(options, 8 * kOne, {kOne, 8 * kOne}), 13);
  EXPECT_EQ(InnerSteps(options, kOne, {kOne, 2 * kOne}), 0);
}

TEST(InnerStepsTest, AClaimOfSpeedLeavesTheOthersAnEighth) {
  for (const auto shares : {v1::SynchronizationConfig::ALWAYS_LATE,
                            v1::SynchronizationConfig::EVERYBODY}) {
    const InnerStepsOptions options{.steps = 100, .shares = shares};
    const absl::Duration claim = absl::Nanoseconds(1);
    EXPECT_EQ(InnerSteps(options, kOne, {claim, kOne}), 13);
    EXPECT_EQ(InnerSteps(options, kOne, {claim, claim, kOne, kOne, kOne}), 13);
    EXPECT_EQ(InnerSteps(options, 2 * kOne, {claim, kOne, 2 * kOne}), 6);
  }
}

TEST(InnerStepsTest, TheOverlapAddsToTheLag) {
  InnerStepsOptions options{.steps = 100, .grace = absl::Seconds(100)};
  options.overlap_steps = 1;
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {kOne, 2 * kOne}), 50);
}

TEST(InnerStepsTest, AnAdaptiveWindowIsNoLongerThanTheOverlap) {
  InnerStepsOptions options{.steps = 100,
                            .grace = absl::Seconds(1000),
                            .grace_overlap_share = 0.5,
                            .overlap_steps = 40};
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {kOne, 2 * kOne}), 50);
  options.grace_overlap_share = 0;
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {kOne, 2 * kOne}), 0);
}

TEST(InnerStepsTest, TheQuorumSetsThePace) {
  const InnerStepsOptions options{.steps = 100, .quorum = 2};
  // Only one of three is fast: the round waits for the second.
  EXPECT_EQ(InnerSteps(options, 4 * kOne, {kOne, 3 * kOne, 4 * kOne}), 75);
  EXPECT_EQ(InnerSteps(options, 3 * kOne, {kOne, 3 * kOne, 4 * kOne}), 0);
}

TEST(InnerStepsTest, EqualsAreNotToldApartByNoise) {
  const InnerStepsOptions options{.steps = 1000};
  EXPECT_EQ(InnerSteps(options, 1.2 * kOne, {kOne, 1.2 * kOne}), 0);
}

TEST(InnerStepsTest, ARunMayAskForSharesForAll) {
  const InnerStepsOptions options{
      .steps = 100,
      .shares = v1::SynchronizationConfig::EVERYBODY,
      .quorum = 2,
      .grace = absl::Seconds(1000)};
  EXPECT_EQ(InnerSteps(options, 1.25 * kOne, {kOne, 1.25 * kOne}), 80);
  EXPECT_EQ(InnerSteps(options, kOne, {kOne, 1.25 * kOne}), 100);
}

TEST(InnerStepsTest, ARunMayAskForNone) {
  const InnerStepsOptions options{.steps = 100,
                                  .shares = v1::SynchronizationConfig::NOBODY};
  EXPECT_EQ(InnerSteps(options, 1000 * kOne, {kOne, 1000 * kOne}), 0);
}

TEST(InnerStepsTest, UnknownStepTimesAreNotCompared) {
  const InnerStepsOptions options{.steps = 100};
  const absl::Duration unknown = absl::ZeroDuration();
  EXPECT_EQ(InnerSteps(options, unknown, {unknown, kOne}), 0);
  EXPECT_EQ(InnerSteps(options, 2 * kOne, {unknown, 2 * kOne}), 0);
}

TEST(InnerStepsTest, TheLimitsThemselves) {
  InnerStepsOptions options{.steps = 100,
                            .shares = v1::SynchronizationConfig::ALWAYS_LATE,
                            .quorum = 1,
                            .grace = absl::Seconds(25)};
  const absl::Duration pace = absl::Seconds(1);
  const auto steps = [&](absl::Duration own) {
    return InnerSteps(options, own, {pace, own});
  };
  // An island that comes at the very end of the window is in time.
  EXPECT_EQ(steps(1.25 * pace), 0);
  options.grace = absl::Seconds(24);
  EXPECT_EQ(steps(1.25 * pace), 80);
  EXPECT_EQ(steps(1.24 * pace), 0) << "equals, however short the window is";
  options.grace = absl::Seconds(1);
  EXPECT_EQ(steps(1.24 * pace), 0);
}

}  // namespace
}  // namespace causeway
