// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/crew_report.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>

#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {
namespace {

const CrewRules kRules{.size = 4, .least = 2};

TEST(CrewReportTest, SaysWhichProcessesAreMissing) {
  EXPECT_FALSE(WithoutTrouble(kRules, {0, 1, 2, 7}, 8).has_value());
  const auto missing = WithoutTrouble(kRules, {0, 3}, 8);
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->kind(), v1::RankTrouble::DEAD_RANK);
  EXPECT_EQ(missing->rank(), 8);
  EXPECT_EQ(missing->text(), "the island has 2 of 4 processes, without 1, 2");
  const CrewRules avoids{
      .size = 4, .least = 2, .avoided = {{1, absl::InfiniteFuture()}}};
  EXPECT_FALSE(WithoutTrouble(avoids, {0, 2, 3}, 8).has_value());
  EXPECT_EQ(WithoutTrouble(avoids, {0, 3}, 8)->rank(), 16);
}

TEST(CrewReportTest, AProcessStampsItsOwnRanks) {
  // Before a page is opened, there is no supervisor.
  StampOwnRanks(0, 1);
  ASSERT_OK_AND_ASSIGN(const auto page, RankStampPage::Create());
  ASSERT_EQ(setenv(kRankStampsVariable, page->path().c_str(), 1), 0);
  ASSERT_OK(OpenRankStamps(SteadyWallClock()));
  const auto self = static_cast<uint32_t>(getpid());
  page->rank(1).process = 1;
  StampOwnRanks(2, 2);
  StampStep(3, 17);
  StampOwnRanks(3, 2);
  EXPECT_EQ(page->rank(1).process, 1);
  EXPECT_EQ(page->rank(2).process, 0);
  EXPECT_EQ(page->rank(3).process, self);
  EXPECT_EQ(page->rank(4).process, self);
  EXPECT_EQ(page->rank(2).step, 0);
  EXPECT_EQ(page->rank(3).step, 17);
  EXPECT_EQ(page->rank(4).step, 17);
}

}  // namespace
}  // namespace causeway
