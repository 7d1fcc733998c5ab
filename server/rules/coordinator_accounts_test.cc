// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the rules at the limits of their ranges, and whose tokens they book.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Verdict = v1::ContributeResponse;

// Returns a contribution with 400 tokens that an earlier process trained.
v1::ContributionHeader Restored(const v1::IslandIdentity& identity,
                                uint64_t base_version) {
  v1::ContributionHeader header = Contribution(identity, base_version);
  header.set_restored_tokens(400);
  return header;
}

// Each island's process has reported 900 tokens of its own. Its contribution
// has 600 of them, and 400 that an earlier process has trained.
TEST(CoordinatorAccounts, RestoredTokensCountWithTheirContribution) {
  CoordinatorDriver run({.min_islands = 3, .parameter_norm = 1});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  for (const v1::IslandIdentity& island : {a, b, c}) {
    ASSERT_OK(run.Heartbeat(island, 9, 900));
  }
  const auto expect = [&](const std::string& island, uint64_t merged,
                          uint64_t refused, uint64_t quarantined,
                          uint64_t pending, uint64_t expired) {
    SCOPED_TRACE(island);
    const v1::TokenLedger ledger = run.core().IslandLedger({island, 1});
    EXPECT_EQ(ledger.reported(), 1300);
    EXPECT_EQ(ledger.merged(), merged);
    EXPECT_EQ(ledger.refused(), refused);
    EXPECT_EQ(ledger.quarantined(), quarantined);
    EXPECT_EQ(ledger.pending(), pending);
    EXPECT_EQ(ledger.expired(), expired);
  };
  ASSERT_OK(run.Contribute(Restored(a, 0)));
  expect("a", 0, 0, 0, 1300, 0);
  for (const v1::IslandIdentity& island : {b, c}) {
    ASSERT_FALSE(run.Contribute(Restored(island, 0), 100).ok());
  }
  expect("b", 0, 0, 1000, 0, 300);
  run.Commit();
  expect("a", 1000, 0, 0, 300, 0);

  // A decided contribution moves from one sum to another.
  ASSERT_OK(run.core().Drop(2, run.effects()));
  expect("c", 0, 1000, 0, 0, 300);
  ASSERT_OK(run.core().Admit(1, run.now(), run.effects()));
  expect("b", 0, 0, 1000, 0, 300);
  run.Advance(CoordinatorDriver::kGrace);
  ASSERT_OK(run.Leave(a));
  run.Commit();
  expect("b", 1000, 0, 0, 0, 300);
}

// A process that is evicted again and again leaves many accounts, of which only
// the last still has tokens to take over.
TEST(CoordinatorAccounts, OnlyAccountsThatChangeAreRecorded) {
  CoordinatorDriver run({});
  uint64_t tokens = 0;
  for (int i = 0; i < 300; ++i) {
    run.effects() = {};
    const v1::IslandIdentity a = run.Join("a");
    EXPECT_LE(run.effects().accounts.size(), 2) << i;
    ASSERT_OK(run.Heartbeat(a, 0, ++tokens));
    ASSERT_OK(run.core().Evict("a", "", run.now(), run.effects()));
    run.Advance(Membership::kJoinPause);
  }
  EXPECT_EQ(run.core().IslandLedger({"a", 300}).reported(), tokens);
  EXPECT_EQ(run.core().FragmentLedger(0).reported(), tokens);
}

TEST(CoordinatorAccounts, TokensOfForgottenIslandsStayInTheSum) {
  constexpr uint64_t kIslands = Membership::kMostDeparted + 10;
  CoordinatorDriver run({});
  for (uint64_t i = 0; i < kIslands; ++i) {
    const std::string name = absl::StrCat("island-", i);
    ASSERT_OK(run.Heartbeat(run.Join(name), 0, /*tokens=*/1));
    ASSERT_OK(run.core().Evict(name, "", run.now(), run.effects()));
    run.Advance(absl::Seconds(1));
  }
  run.Join("another");
  EXPECT_EQ(run.core().IslandLedger({"island-0", 1}).reported(), 0);
  EXPECT_EQ(run.core().FragmentLedger(0).reported(), kIslands);
  EXPECT_EQ(run.core().FragmentLedger(0).expired(), kIslands);
}

TEST(CoordinatorAccounts, AllTokensMayComeFromACheckpoint) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  v1::ContributionHeader header = Contribution(a, 0);
  header.set_restored_tokens(header.tokens() + 1);
  EXPECT_THAT(run.Offer(header), IsInvalidArgument());
  header.set_restored_tokens(header.tokens());
  EXPECT_THAT(run.Contribute(header), IsOkAndHolds(Verdict::ACCEPTED));
}

// A round needs c as soon as another island is gone, before the next tick.
TEST(CoordinatorAccounts, ANeededIslandIsExpectedAtOnce) {
  for (const bool merging : {false, true}) {
    SCOPED_TRACE(merging ? "after a merge that failed" : "in an open round");
    CoordinatorDriver run({.min_islands = 2, .quorum = 2});
    const v1::IslandIdentity a = run.Join("a");
    const v1::IslandIdentity b = run.Join("b");
    const v1::IslandIdentity c = run.Join("c");
    EXPECT_THAT(run.core().View(c).first_contribution_version(),
                ElementsAre(1));
    if (merging) {
      ASSERT_OK(run.Contribute(Contribution(a, 0), 1));
      ASSERT_OK(run.Contribute(Contribution(b, 0), 2));
      ASSERT_THAT(run.closed_rounds(), SizeIs(1));
    }
    ASSERT_OK(run.Leave(b));
    if (merging) run.Fail(absl::OutOfRangeError("not finite"));
    EXPECT_THAT(run.core().View(c).first_contribution_version(),
                ElementsAre(0));
  }
}

TEST(CoordinatorAccounts, AViewHasAllThatAnIslandActsOn) {
  CoordinatorDriver run({.configure = [](auto& config) {
    config.mutable_synchronization()->set_inner_steps_per_round(100);
    config.mutable_synchronization()->set_inner_step_shares(
        v1::SynchronizationConfig::EVERYBODY);
  }});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_OK(run.Heartbeat(run.Join("b"), 0, 0, 0.5));
  ASSERT_OK(run.Heartbeat(a, 5, 0, 1));
  ASSERT_OK(run.core().Drain("a", "", run.effects()));
  ASSERT_OK(run.core().Pause("maintenance", run.now(), run.effects()));
  v1::SessionResponse expected;
  expected.set_run_state(v1::PAUSED);
  expected.set_message("maintenance");
  expected.set_run_step(5);
  *expected.add_heads() = run.core().heads()[0].head;
  expected.add_first_contribution_version(0);
  expected.set_drain(true);
  expected.set_inner_steps_per_round(50);
  expected.set_epoch(1);
  EXPECT_EQ(run.core().View(a).DebugString(), expected.DebugString());
  // Others learn about the run only.
  v1::IslandIdentity stranger = a;
  stranger.set_incarnation(7);
  expected.clear_first_contribution_version();
  expected.clear_drain();
  expected.clear_inner_steps_per_round();
  EXPECT_EQ(run.core().View(stranger).DebugString(), expected.DebugString());
}

// With overlap, an island may lag by as many steps as an update may.
TEST(CoordinatorAccounts, TheOverlapCountsAsLag) {
  CoordinatorDriver run(
      {.overlap_steps = 5, .configure = [](auto& config) {
         config.mutable_synchronization()->set_inner_steps_per_round(100);
         config.mutable_synchronization()->set_max_overlap_steps(6);
       }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Heartbeat(a, 0, 0, 1));
  // It lags by 49 s plus 11 s of overlap, exactly the grace window.
  ASSERT_OK(run.Heartbeat(b, 0, 0, 1.49));
  EXPECT_EQ(run.core().View(b).inner_steps_per_round(), 0);
  ASSERT_OK(run.Heartbeat(b, 0, 0, 1.5));
  EXPECT_EQ(run.core().View(b).inner_steps_per_round(), 67);
}

// An update is needed 10 s after the first offer. The upload takes 2 s, as the
// download will, and the outer step 1 s, which leaves 5 s.
TEST(CoordinatorAccounts, TheAdaptiveGraceWindowLeavesTimeForTheUpdate) {
  CoordinatorDriver run(
      {.min_islands = 2, .overlap_steps = 5, .configure = [](auto& config) {
         config.mutable_membership()->set_grace_overlap_share(1);
       }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const auto heartbeats = [&] {
    ASSERT_OK(run.Heartbeat(a, 0, 0, 2));
    ASSERT_OK(run.Heartbeat(b, 0, 0, 1));
  };
  heartbeats();
  for (const v1::IslandIdentity& island : {a, b}) {
    ASSERT_OK(run.Contribute(Contribution(island, 0)));
  }
  run.Commit();  // It takes 1 s.
  ASSERT_OK(run.Offer(Contribution(a, 1)));
  run.Advance(absl::Seconds(2));
  ASSERT_OK(run.Complete(Contribution(a, 1)));
  // 10 - 2 - 1 - 2 s.
  run.Advance(absl::Seconds(4.9));
  heartbeats();
  run.Tick();
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  run.Advance(absl::Seconds(0.1));
  run.Tick();
  EXPECT_THAT(run.closed_rounds(), SizeIs(1));
}

TEST(CoordinatorAccounts, TheSeedDrawsWhoIsLeftOut) {
  const auto late = [](uint64_t seed) {
    CoordinatorDriver run(
        {.min_islands = 2, .rounds = 60, .configure = [seed](auto& config) {
           config.set_seed(seed);
           config.mutable_membership()->set_drop_contributions(0.5);
         }});
    const v1::IslandIdentity a = run.Join("a");
    const v1::IslandIdentity b = run.Join("b");
    std::string drawn;
    while (run.version() < 60) {
      const auto verdict = run.Contribute(Contribution(a, run.version()));
      drawn += *verdict == Verdict::LATE ? '1' : '0';
      CHECK(run.Contribute(Contribution(b, run.version())).ok());
      run.Commit();
    }
    return drawn;
  };
  EXPECT_EQ(late(1), late(1));
  EXPECT_NE(late(1), late(2));
}

}  // namespace
}  // namespace causeway
