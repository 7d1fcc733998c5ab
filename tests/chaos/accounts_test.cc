// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/accounts.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SyncSchedule Schedule() {
  return *SyncSchedule::Create(SyncSchedule::Options{
      .round_steps = 10, .send_offsets = {0}, .total_steps = 1000});
}

// Returns a life of steps first .. last.
IslandLife Life(uint64_t incarnation, uint64_t first, uint64_t last,
                bool survived) {
  IslandLife life{
      .island = "east", .incarnation = incarnation, .survived = survived};
  life.steps.resize(last - first + 1);
  std::iota(life.steps.begin(), life.steps.end(), first);
  return life;
}

MergedRound Round(uint64_t version, uint64_t incarnation, uint64_t steps) {
  return {.version = version,
          .contributions = {{.island_id = "east",
                             .incarnation = incarnation,
                             .inner_steps = steps}}};
}

TEST(AccountsTest, ALogTellsMembershipAndSteps) {
  const IslandLife life = ReadLife(
      "east",
      "I20261121 11:05:47.000001 1 island.cc:1] joined run r as east "
      "(incarnation 12), data shard 0 of 2\n"
      "I20261121 11:05:47.614780 15790 island.cc:245] step 31/40  loss 3.5  "
      "waited 0.125 s\n"
      "I20261121 11:05:47.714780 15790 island.cc:245] step 32/40  loss 3.5  "
      "waited 0.125 s\n",
      true);
  EXPECT_EQ(life.incarnation, 12);
  EXPECT_THAT(life.steps, ElementsAre(31, 32));
}

TEST(AccountsTest, MergingEachStepOnceIsNoViolation) {
  const Accounts accounts = CheckAccounts(
      Schedule(), {Round(1, 1, 10), Round(2, 1, 10), Round(3, 1, 10)},
      {Life(1, 1, 34, true)}, "] fragment 0 is at version 3: merged east");
  EXPECT_THAT(accounts.findings, IsEmpty());
  EXPECT_EQ(accounts.died_steps, 0);
}

TEST(AccountsTest, TheLastContributionMayBeUnderWay) {
  const Accounts accounts =
      CheckAccounts(Schedule(), {Round(1, 1, 10), Round(2, 1, 10)},
                    {Life(1, 1, 34, true)}, "");
  EXPECT_EQ(accounts.lost_steps, 0);
}

TEST(AccountsTest, AWindowThatIsMissingIsLost) {
  const Accounts accounts =
      CheckAccounts(Schedule(), {Round(1, 1, 10), Round(3, 1, 10)},
                    {Life(1, 1, 44, true)}, "");
  EXPECT_EQ(accounts.lost_steps, 10);
  EXPECT_THAT(accounts.findings, ElementsAre(HasSubstr("less than")));
}

TEST(AccountsTest, AWindowThatIsMergedTwiceIsDoubleCounted) {
  const Accounts accounts = CheckAccounts(
      Schedule(), {Round(1, 1, 10), Round(2, 1, 20), Round(3, 1, 10)},
      {Life(1, 1, 32, true)}, "");
  EXPECT_EQ(accounts.double_counted_steps, 8);
}

TEST(AccountsTest, LivesAreToldApartByIncarnation) {
  // The first life rejoined once by itself.
  const Accounts accounts = CheckAccounts(
      Schedule(), {Round(1, 1, 10), Round(2, 2, 10), Round(4, 3, 10)},
      {Life(1, 1, 26, false), Life(3, 31, 45, true)}, "");
  EXPECT_THAT(accounts.findings, IsEmpty());
  EXPECT_EQ(accounts.died_steps, 6);
  // The second life cannot have trained this much.
  const Accounts wrong =
      CheckAccounts(Schedule(), {Round(1, 3, 10), Round(2, 3, 10)},
                    {Life(1, 1, 26, false), Life(3, 31, 45, true)}, "");
  EXPECT_EQ(wrong.double_counted_steps, 5);
}

TEST(AccountsTest, AnnouncedCommitsMustBeThere) {
  const Accounts accounts =
      CheckAccounts(Schedule(), {Round(1, 1, 10)}, {},
                    "x] fragment 0 is at version 1: merged east\n"
                    "x] fragment 0 is at version 2: merged east\n");
  EXPECT_EQ(accounts.lost_commits, 1);
  EXPECT_THAT(accounts.findings, ElementsAre(HasSubstr("version 2")));
}

}  // namespace
}  // namespace causeway
