// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/slow_process.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::DoubleNear;
using Windows = std::vector<CollectiveDiagnosis>;

CollectiveDiagnosis Link(int rank, int to_rank, double share = 0.8) {
  return {.kind = CollectiveDiagnosis::Kind::kSlowLink,
          .rank = rank,
          .to_rank = to_rank,
          .share = share};
}
CollectiveDiagnosis SlowRank(int rank, double share = 0.8) {
  return {.kind = CollectiveDiagnosis::Kind::kSlowRank,
          .rank = rank,
          .share = share};
}

constexpr SlowProcessRules kRules{
    .least_saved = 0.1, .ranks = 1, .processes = 4, .fewer = 3};

// Returns the place of the process that is left out, or -1.
int LeftOut(const Windows& windows, const SlowProcessRules& rules = kRules) {
  const std::optional<SlowProcess> slow = FindSlowProcess(windows, rules);
  return slow.has_value() ? slow->place : -1;
}

TEST(SlowProcessTest, WhatIsLeftIsSharedByFewer) {
  EXPECT_THAT(ShareSaved(0.5, 4, 4), DoubleNear(0.5, 1e-12));
  EXPECT_THAT(ShareSaved(0.25, 4, 3), DoubleNear(0, 1e-12));
  EXPECT_THAT(ShareSaved(0.75, 2, 1), DoubleNear(0.5, 1e-12));
  EXPECT_LT(ShareSaved(0.4, 4, 2), 0);
}

TEST(SlowProcessTest, ALinkOrRankThatIsBlamedAgainAndAgainIsLeftOut) {
  // Both directions of a link are one link.
  EXPECT_EQ(LeftOut({Link(1, 3), Link(3, 1), Link(1, 3)}), 3);
  EXPECT_EQ(LeftOut({Link(0, 2), Link(0, 2), Link(2, 0)}), 2);
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(1), SlowRank(1)}), 1);
  // Earlier windows do not count.
  EXPECT_EQ(LeftOut({{}, SlowRank(3), SlowRank(1), SlowRank(1), SlowRank(1)}),
            1);
  // A process with several slow links is at an end of each.
  EXPECT_EQ(LeftOut({Link(1, 3), Link(1, 2), Link(0, 1)}), 1);
  EXPECT_EQ(LeftOut({Link(1, 3), SlowRank(1), Link(3, 1)}), 1);
}

TEST(SlowProcessTest, NobodyIsLeftOutWithoutConsecutiveWindows) {
  EXPECT_EQ(LeftOut({}), -1);
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(1)}), -1);
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(1), {}}), -1);
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(1), {}, SlowRank(1)}), -1);
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(2), SlowRank(1)}), -1);
  EXPECT_EQ(LeftOut({Link(1, 2), Link(2, 3), Link(1, 3)}), -1);
}

TEST(SlowProcessTest, TheLeaderStays) {
  EXPECT_EQ(LeftOut({SlowRank(0), SlowRank(0), SlowRank(0)}), -1);
  EXPECT_EQ(LeftOut({Link(0, 1), Link(0, 2), Link(0, 3)}), -1);
}

TEST(SlowProcessTest, OnlyIfTheIslandIsFasterWithoutIt) {
  // (1 - share) 4 / 3 of the time is left.
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.32))), -1);
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.33))), 1);
  // The window in which the process cost least counts.
  EXPECT_EQ(LeftOut({SlowRank(1), SlowRank(1, 0.3), SlowRank(1)}), -1);
  // Two must do the work of four.
  SlowProcessRules rules = kRules;
  rules.fewer = 2;
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.5)), rules), -1);
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.6)), rules), 1);
  // A spare takes its place.
  rules.fewer = 4;
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.2)), rules), 1);
  // The crew may not shrink.
  rules.fewer = 0;
  EXPECT_EQ(LeftOut(Windows(3, SlowRank(1, 0.99)), rules), -1);
}

TEST(SlowProcessTest, AProcessIsBlamedForItsRanks) {
  SlowProcessRules rules = kRules;
  rules.ranks = 4;
  EXPECT_EQ(LeftOut({SlowRank(4), SlowRank(5), SlowRank(7)}, rules), 1);
  EXPECT_EQ(LeftOut({SlowRank(3), SlowRank(2), SlowRank(0)}, rules), -1);
  const std::optional<SlowProcess> slow = FindSlowProcess(
      {Link(5, 14, 0.7), Link(14, 5, 0.55), Link(6, 13, 0.6)}, rules);
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->place, 3);
  EXPECT_THAT(slow->share, DoubleNear(0.55, 1e-12));
  EXPECT_THAT(slow->saved, DoubleNear(0.4, 1e-12));
}

}  // namespace
}  // namespace causeway
