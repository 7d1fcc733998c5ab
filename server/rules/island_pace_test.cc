// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/island_pace.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::Optional;

// Reports `own` beside two islands that take `other`, `count` times. Returns
// the last report's change; the earlier ones must change nothing.
std::optional<std::string> Reports(IslandPace& pace, int count, double own,
                                   double other = 1) {
  for (int i = 1; i < count; ++i) {
    EXPECT_EQ(pace.Heard(own, {own, other, other}), std::nullopt) << i;
  }
  return pace.Heard(own, {own, other, other});
}

TEST(IslandPaceTest, FiveReportsInARowShowThatAnIslandIsSlowerThanOthers) {
  IslandPace pace;
  EXPECT_EQ(Reports(pace, 4, 1.4), std::nullopt);
  EXPECT_EQ(Reports(pace, 1, 1), std::nullopt);
  EXPECT_THAT(Reports(pace, 5, 1.4),
              Optional(std::string(
                  "takes 1.4 s for a step, the median island takes 1 s")));
  EXPECT_TRUE(pace.is_slow());
  EXPECT_EQ(Reports(pace, 20, 1.4), std::nullopt);
  // Between the two limits nothing changes.
  EXPECT_EQ(Reports(pace, 20, 1.25), std::nullopt);
  EXPECT_THAT(Reports(pace, 5, 1),
              Optional(std::string("is not slow any more")));
  EXPECT_FALSE(pace.is_slow());
}

TEST(IslandPaceTest, AnIslandIsSlowerThanItWas) {
  IslandPace pace;
  // The others are even slower.
  EXPECT_EQ(Reports(pace, 20, 1, 3), std::nullopt);
  EXPECT_THAT(
      Reports(pace, 5, 1.5, 3),
      Optional(std::string("takes 1.5 s for a step, and usually takes 1 s")));
  // In the end that is its usual pace.
  std::optional<std::string> change;
  for (int i = 0; i < 60 && !change.has_value(); ++i) {
    change = pace.Heard(1.5, {1.5, 3, 3});
  }
  EXPECT_THAT(change, Optional(std::string("is not slow any more")));
}

TEST(IslandPaceTest, TheFasterOfTwoIslandsIsTheMedian) {
  IslandPace fast, slow;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(fast.Heard(1, {1, 2}), std::nullopt);
    EXPECT_EQ(slow.Heard(2, {1, 2}), std::nullopt);
  }
  EXPECT_EQ(fast.Heard(1, {1, 2}), std::nullopt);
  EXPECT_NE(slow.Heard(2, {1, 2}), std::nullopt);
}

TEST(IslandPaceTest, UnknownTimesCountForNothing) {
  IslandPace pace;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pace.Heard(0, {0, 1, 1}), std::nullopt);
    EXPECT_EQ(pace.Heard(5, {5, 0, 0}), std::nullopt);
  }
}

}  // namespace
}  // namespace causeway
