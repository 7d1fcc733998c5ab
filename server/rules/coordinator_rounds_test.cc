// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests of the rules that close rounds and book their results.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::SizeIs;
using Verdict = v1::ContributeResponse;

TEST(CoordinatorRounds, TheLedgerTellsWholeFromPartialAndLost) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Heartbeat(a, 10, 1000));
  ASSERT_OK(run.Heartbeat(b, 10, 1500));
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  auto partial = Contribution(b, 0);
  partial.set_partial(true);
  partial.set_tokens(1200);
  ASSERT_OK(run.Contribute(partial));
  ASSERT_OK(run.Leave(b));
  // They are in the open round: not lost, although the island is gone.
  EXPECT_EQ(run.core().IslandLedger({"b", 1}).pending(), 1200);
  EXPECT_EQ(run.core().IslandLedger({"b", 1}).expired(), 300);
  run.Commit();
  const v1::TokenLedger ledger = run.core().FragmentLedger(0);
  EXPECT_EQ(ledger.reported(), 2500);
  EXPECT_EQ(ledger.merged(), 1000);
  EXPECT_EQ(ledger.partial_merged(), 1200);
  EXPECT_EQ(ledger.expired(), 300);
  EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
}

TEST(CoordinatorRounds, AVersionIsNoNewsToAnIslandWhoseCallWaitsForIt) {
  CoordinatorDriver run({.min_islands = 2, .fragments = 2});
  const v1::IslandIdentity waiting = run.Join("a");
  const v1::IslandIdentity other = run.Join("b");
  const auto await = [&](uint32_t fragment, uint64_t from_version) {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = waiting;
    request.set_fragment(fragment);
    request.set_from_version(from_version);
    request.set_wait(true);
    return run.core().IsAwaited(request);
  };
  const v1::SessionResponse shown = run.core().View(waiting);
  const auto commit = [&](uint32_t fragment, uint64_t base_version) {
    ASSERT_OK(run.Contribute(Contribution(waiting, base_version, fragment)));
    ASSERT_OK(run.Contribute(Contribution(other, base_version, fragment)));
    run.Commit();
  };
  EXPECT_THAT(await(1, 0), IsOkAndHolds(true));
  commit(1, 0);
  EXPECT_EQ(run.core().News(waiting, shown), std::nullopt);
  const auto news = run.core().News(other, run.core().View(other));
  EXPECT_EQ(news, std::nullopt) << "it was shown everything";
  ASSERT_TRUE(run.core().News(other, shown).has_value());
  EXPECT_EQ(run.core().News(other, shown)->heads(1).version(), 1);
  // Other news bring the version along.
  Effects effects;
  ASSERT_OK(run.core().Pause("", run.now(), effects));
  ASSERT_TRUE(run.core().News(waiting, shown).has_value());
  EXPECT_EQ(run.core().News(waiting, shown)->heads(1).version(), 1);
  ASSERT_OK(run.core().Resume(run.now(), effects));
  EXPECT_EQ(run.core().News(waiting, shown), std::nullopt);
  // No call waits for these.
  commit(0, 0);
  EXPECT_NE(run.core().News(waiting, shown), std::nullopt);
  const v1::SessionResponse later = run.core().View(waiting);
  EXPECT_EQ(run.core().News(waiting, later), std::nullopt);
  commit(1, 1);
  EXPECT_NE(run.core().News(waiting, later), std::nullopt);
}

TEST(CoordinatorRounds, AReturningProcessTakesItsTokensAlong) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a", 5);
  ASSERT_OK(run.Heartbeat(a, 10, 800));
  run.Advance(2 * CoordinatorDriver::kLease);
  run.Tick();
  EXPECT_EQ(run.core().FragmentLedger(0).expired(), 800);
  const v1::IslandIdentity again = run.Join("a", 5);
  EXPECT_EQ(run.core().FragmentLedger(0).expired(), 0);
  ASSERT_OK(run.Heartbeat(again, 10, 1000));
  ASSERT_OK(run.Contribute(Contribution(again, 0)));
  run.Commit();
  const v1::TokenLedger ledger = run.core().FragmentLedger(0);
  EXPECT_EQ(ledger.merged(), 1000);
  EXPECT_EQ(ledger.reported(), 1000);
}

// No island counts twice, and no more take part than there were islands.
TEST(CoordinatorRounds, AnIslandThatContributedAndLeftTookPart) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Contribute(Contribution(b, 0)));
  v1::LeaveRequest leave;
  *leave.mutable_identity() = b;
  ASSERT_OK(run.core().Leave(leave, run.now(), run.effects()));
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  run.Commit();
  const v1::Participation& last = run.core().last_round(0);
  EXPECT_EQ(last.live(), 2);
  EXPECT_EQ(last.contributing(), 2);
  EXPECT_EQ(last.merged(), 2);
}

TEST(CoordinatorRounds, InnerStepsFollowTheMeasuredSpeed) {
  CoordinatorDriver run({.configure = [](auto& config) {
    config.mutable_synchronization()->set_inner_steps_per_round(100);
    config.mutable_synchronization()->set_inner_step_shares(
        v1::SynchronizationConfig::EVERYBODY);
  }});
  const v1::IslandIdentity fast = run.Join("fast");
  const v1::IslandIdentity slow = run.Join("slow");
  const v1::IslandIdentity slowest = run.Join("slowest");
  EXPECT_EQ(run.core().View(slow).inner_steps_per_round(), 0) << "unmeasured";
  ASSERT_OK(run.Heartbeat(fast, 0, 0, 0.5));
  ASSERT_OK(run.Heartbeat(slow, 0, 0, 0.8));
  ASSERT_OK(run.Heartbeat(slowest, 0, 0, 50));
  EXPECT_EQ(run.core().View(fast).inner_steps_per_round(), 100);
  EXPECT_EQ(run.core().View(slow).inner_steps_per_round(), 63);
  EXPECT_EQ(run.core().View(slowest).inner_steps_per_round(), 1);
}

// Returns the tokens that contributions of an island count for.
uint64_t MergedTokens(CoordinatorDriver& run, const std::string& island) {
  return run.core().membership().members().at(island).tokens_merged;
}

TEST(CoordinatorRounds, AClaimOfTokensCountsAsFarAsTheScheduleGoes) {
  CoordinatorDriver run({.min_islands = 2, .rounds = 9});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity liar = run.Join("liar");
  constexpr uint64_t kRoundTokens =
      CoordinatorDriver::kRoundSteps * CoordinatorDriver::kStepTokens;
  auto claim = Contribution(liar, 0);
  claim.set_tokens(std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(run.Contribute(claim),
              IsInvalidArgument("18446744073709551615 tokens; allowed: up to "
                                "36000"));
  for (uint64_t round = 0; round < 3; ++round) {
    claim = Contribution(liar, round);
    // Twice the steps of the run, and all their tokens, are allowed.
    claim.set_inner_steps(180);
    claim.set_tokens(36000);
    claim.set_restored_tokens(36000);
    ASSERT_THAT(run.Contribute(claim), IsOkAndHolds(Verdict::ACCEPTED));
    ASSERT_OK(run.Contribute(Contribution(a, round)));
    run.Commit();
    EXPECT_EQ(MergedTokens(run, "liar"),
              (round + 1 + Claims::kSlackRounds) * kRoundTokens);
    EXPECT_EQ(MergedTokens(run, "a"), (round + 1) * 1000);
  }
  // Steps are bounded, too: few of them would weigh more under
  // TOKENS_SQUARED_PER_STEP.
  claim = Contribution(liar, 3);
  claim.set_inner_steps(1);
  claim.set_tokens(36000);
  ASSERT_OK(run.Contribute(claim));
  ASSERT_OK(run.Contribute(Contribution(a, 3)));
  EXPECT_EQ(run.closed_rounds()[0].contributions[1].tokens(),
            CoordinatorDriver::kStepTokens);
  run.Commit();
  // A heartbeat reports no more than a process can train.
  ASSERT_OK(run.Heartbeat(liar, 40, std::numeric_limits<uint64_t>::max()));
  const v1::TokenLedger ledger = run.core().IslandLedger({"liar", 1});
  EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
  EXPECT_LE(ledger.reported(), 2 * 36000);
}

TEST(CoordinatorRounds, AnIslandContributesTokensOfMissedRoundsAtOnce) {
  CoordinatorDriver run({.min_islands = 2, .rounds = 9});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity late = run.Join("late");
  for (uint64_t round = 0; round < 4; ++round) {
    ASSERT_OK(run.Contribute(Contribution(a, round)));
    for (int i = 0; run.closed_rounds().empty() && i < 100; ++i) {
      run.Advance(absl::Seconds(1));
      ASSERT_OK(run.Heartbeat(a));
      ASSERT_OK(run.Heartbeat(late));
      run.Tick();
    }
    run.Commit();
  }
  auto all = Contribution(late, 4);
  all.set_inner_steps(50);
  all.set_tokens(10000);
  ASSERT_OK(run.Contribute(all));
  ASSERT_OK(run.Contribute(Contribution(a, 4)));
  run.Commit();
  EXPECT_EQ(MergedTokens(run, "late"), 10000);
}

TEST(CoordinatorRounds, AnIslandThatNeverContributesSetsNoPace) {
  CoordinatorDriver run(
      {.min_islands = 3, .configure = [](auto& config) {
         config.mutable_synchronization()->set_inner_steps_per_round(100);
         config.mutable_synchronization()->set_inner_step_shares(
             v1::SynchronizationConfig::EVERYBODY);
       }});
  const v1::IslandIdentity liar = run.Join("liar");
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Heartbeat(liar, 0, 0, 1e-9));
  ASSERT_OK(run.Heartbeat(a, 0, 0, 1));
  ASSERT_OK(run.Heartbeat(b, 0, 0, 2));
  EXPECT_EQ(run.core().View(a).inner_steps_per_round(), 13);
  for (const v1::IslandIdentity& island : {a, b}) {
    ASSERT_THAT(run.Contribute(Contribution(island, 0)),
                IsOkAndHolds(v1::ContributeResponse::ACCEPTED));
  }
  while (run.closed_rounds().empty()) {
    run.Advance(absl::Seconds(5));
    ASSERT_OK(run.Heartbeat(liar, 0, 0, 1e-9));
    ASSERT_OK(run.Heartbeat(a, 0, 0, 1));
    ASSERT_OK(run.Heartbeat(b, 0, 0, 2));
    run.Tick();
  }
  run.Commit();
  EXPECT_EQ(run.core().View(a).inner_steps_per_round(), 100);
  EXPECT_EQ(run.core().View(b).inner_steps_per_round(), 50);
}

TEST(CoordinatorRounds, ByDefaultOnlyAnIslandAlwaysLateGetsAShare) {
  CoordinatorDriver run({.configure = [](auto& config) {
    config.mutable_synchronization()->set_inner_steps_per_round(100);
  }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  // b comes 50 s, then 100 s after a; the grace window is 60 s.
  ASSERT_OK(run.Heartbeat(a, 0, 0, 1));
  ASSERT_OK(run.Heartbeat(b, 0, 0, 1.5));
  EXPECT_EQ(run.core().View(b).inner_steps_per_round(), 0);
  ASSERT_OK(run.Heartbeat(b, 0, 0, 2));
  EXPECT_EQ(run.core().View(b).inner_steps_per_round(), 50);
  EXPECT_EQ(run.core().View(a).inner_steps_per_round(), 0);
}

TEST(CoordinatorRounds, WithoutGraceTheFirstContributionMakesTheRound) {
  CoordinatorDriver run({.min_islands = 2, .configure = [](auto& config) {
                           config.mutable_membership()->set_grace_seconds(0);
                         }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(Verdict::LATE));
  run.Commit();
  // b has rebased, and makes the next round.
  ASSERT_OK(run.Contribute(Contribution(b, 1)));
  run.Commit();
  EXPECT_EQ(run.version(), 2);
}

TEST(CoordinatorRounds, LeftOutContributionsAreAboutTheShareAskedFor) {
  constexpr int kRounds = 300;
  CoordinatorDriver run({.min_islands = 4,
                         .quorum = 1,
                         .rounds = kRounds,
                         .configure = [](auto& config) {
                           config.mutable_membership()->set_drop_contributions(
                               0.5);
                         }});
  std::vector<v1::IslandIdentity> islands;
  for (const char* name : {"a", "b", "c", "d"}) {
    islands.push_back(run.Join(name));
  }
  int late = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const v1::IslandIdentity& island : islands) {
      ASSERT_OK_AND_ASSIGN(const auto verdict,
                           run.Contribute(Contribution(island, run.version())));
      late += verdict == Verdict::LATE ? 1 : 0;
    }
    ASSERT_THAT(run.closed_rounds(), SizeIs(1)) << "the round waits for nobody";
    run.Commit();
  }
  // 1200 contributions, without those that a round needs for its quorum (1
  // in 16 rounds), are late 581 times, with a standard deviation of 17.
  EXPECT_GT(late, 581 - 5 * 17);
  EXPECT_LT(late, 581 + 5 * 17);
}

}  // namespace
}  // namespace causeway
