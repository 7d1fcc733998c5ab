// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/verdicts.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {
namespace {

v1::RankTrouble Dead(uint32_t rank, const char* text) {
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::DEAD_RANK);
  trouble.set_rank(rank);
  trouble.set_text(text);
  return trouble;
}

TEST(VerdictsTest, TheTextsOfTwoAreJoined) {
  EXPECT_FALSE(Joined(std::nullopt, std::nullopt).has_value());
  EXPECT_EQ(Joined(Dead(2, "a"), std::nullopt)->text(), "a");
  EXPECT_EQ(Joined(std::nullopt, Dead(2, "b"))->rank(), 2);
  const auto both = Joined(Dead(3, "a"), Dead(2, "b"));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->rank(), 3);
  EXPECT_EQ(both->text(), "a; b");
}

TEST(VerdictsTest, RankZeroTakesTheVerdictsOfAllHostsOnce) {
  LocalRendezvous table;
  Verdicts verdicts(&table, 4);
  EXPECT_FALSE(verdicts.Take().has_value());
  // Without a supervisor there is nothing to share.
  ShareVerdict(3, &table);
  EXPECT_FALSE(verdicts.Take().has_value());

  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RankStampPage> page,
                       RankStampPage::Create());
  ASSERT_EQ(setenv(kRankStampsVariable, page->path().c_str(), 1), 0);
  ASSERT_OK(OpenRankStamps(SteadyWallClock()));
  page->SetVerdict(Dead(5, "one"));
  for (const int process : {2, 3}) ShareVerdict(process, &table);
  page->SetVerdict(Dead(1, "two"));
  ShareVerdict(1, &table);
  page->SetVerdict(Dead(0, "own"));

  const auto all = verdicts.Take();
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->rank(), 0);
  EXPECT_EQ(all->text(), "own; two; one");
  EXPECT_FALSE(verdicts.Take().has_value());

  // A later verdict is taken later.
  page->SetVerdict(Dead(7, "three"));
  ShareVerdict(3, &table);
  const auto late = verdicts.Take();
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->rank(), 7);
  EXPECT_EQ(late->kind(), v1::RankTrouble::DEAD_RANK);

  // An island of one process has no table.
  page->SetVerdict(Dead(0, "alone"));
  EXPECT_EQ(Verdicts(nullptr, 1).Take()->text(), "alone");
}

}  // namespace
}  // namespace causeway
