// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests of operators' requests and of the quarantine.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(CoordinatorPause, HoldsRoundsOpenButTakesContributions) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_OK(run.core().Pause("maintenance", run.now(), run.effects()));
  EXPECT_EQ(run.core().run_state(), v1::PAUSED);
  EXPECT_EQ(run.core().View(a).message(), "maintenance");
  EXPECT_THAT(run.Contribute(Contribution(a, 0)),
              IsOkAndHolds(Verdict::ACCEPTED));
  run.Advance(CoordinatorDriver::kGrace);
  ASSERT_OK(run.Heartbeat(a));
  run.Tick();
  EXPECT_THAT(run.closed_rounds(), IsEmpty());

  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  run.Tick();
  EXPECT_EQ(run.effects().outer_steps.size() + run.closed_rounds().size(), 1);
}

TEST(CoordinatorPause, StopsTheGraceWindow) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  run.Pass(CoordinatorDriver::kGrace / 2, {a, b});
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  run.Pass(2 * CoordinatorDriver::kGrace, {a, b});
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  run.Pass(CoordinatorDriver::kGrace / 2 - absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), IsEmpty()) << "without b";
  run.Pass(absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), SizeIs(1));
}

// The pause has survived a restart.
TEST(CoordinatorPause, AQuorumOfItWaitsForTheWholeGraceWindowAfterIt) {
  CoordinatorHistory history;
  history.flags.paused = true;
  CoordinatorDriver run({.min_islands = 2}, {}, {}, history);
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  run.Pass(CoordinatorDriver::kGrace, {a, b});
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  run.Pass(2 * CoordinatorDriver::kGrace, {a, b});
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  run.Pass(CoordinatorDriver::kGrace - absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), IsEmpty()) << "without b";
  run.Pass(absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), SizeIs(1));
}

TEST(CoordinatorPause, MakesNoIslandExpectedEarlier) {
  CoordinatorDriver run({.min_islands = 2, .quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  const auto pass = [&](absl::Duration duration) {
    for (absl::Duration passed; passed < duration; passed += absl::Seconds(5)) {
      run.Advance(absl::Seconds(5));
      for (const v1::IslandIdentity& island : {a, b, c}) {
        ASSERT_OK(run.Heartbeat(island, CoordinatorDriver::kRoundSteps));
      }
      run.Tick();
    }
  };
  const auto first = [&] {
    return run.core().View(c).first_contribution_version(0);
  };
  // With a contribution of c, the round could close, and b sends nothing.
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  pass(absl::Seconds(5));
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  pass(2 * CoordinatorDriver::kGrace);
  EXPECT_EQ(first(), 1);
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  pass(CoordinatorDriver::kGrace - absl::Seconds(5));
  EXPECT_EQ(first(), 1);
  pass(absl::Seconds(5));
  EXPECT_EQ(first(), 0);
}

TEST(CoordinatorPause, IsRememberedAndCanBeRepeated) {
  CoordinatorDriver run({});
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  EXPECT_EQ(run.CountEvents("run_paused"), 1);
  // The reason may come later; what holds is not recorded again.
  for (const char* reason : {"maintenance", "maintenance", ""}) {
    ASSERT_OK(run.core().Pause(reason, run.now(), run.effects()));
  }
  EXPECT_EQ(run.CountEvents("run_paused"), 2);
  ASSERT_TRUE(run.effects().flags.has_value());
  EXPECT_TRUE(run.effects().flags->paused);
  EXPECT_EQ(run.effects().flags->pause_reason, "maintenance");

  CoordinatorHistory history;
  history.flags = *run.effects().flags;
  history.flags.started = true;
  CoordinatorDriver restarted({.min_islands = 2}, {}, {}, history);
  EXPECT_EQ(restarted.core().run_state(), v1::PAUSED);
  ASSERT_OK(restarted.core().Resume(restarted.now(), restarted.effects()));
  // The run had started, although no island is back yet.
  EXPECT_EQ(restarted.core().run_state(), v1::RUNNING);
}

TEST(CoordinatorDrain, TellsTheIslandOnce) {
  CoordinatorDriver run({});
  v1::IslandIdentity a = run.Join("a");
  run.effects() = {};
  EXPECT_FALSE(run.core().View(a).drain());
  EXPECT_THAT(run.core().Drain("b", "", run.effects()), IsNotFound("\"b\""));
  ASSERT_OK(run.core().Drain("a", "", run.effects()));
  ASSERT_OK(run.core().Drain("a", "", run.effects()));
  EXPECT_TRUE(run.core().View(a).drain());
  ASSERT_EQ(run.effects().changed.size(), 1);
  EXPECT_TRUE(run.effects().changed[0].draining);
  // It may not have heard of it before its lease ended.
  run.Advance(CoordinatorDriver::kLease + absl::Seconds(1));
  run.Tick();
  a = run.Join("a");
  EXPECT_EQ(a.incarnation(), 2);
  EXPECT_TRUE(run.core().View(a).drain());
  // Its next process is not asked to leave.
  ASSERT_OK(run.Leave(a));
  EXPECT_THAT(run.core().Drain("a", "", run.effects()), IsAlreadyExists());
  EXPECT_FALSE(run.core().View(run.Join("a", 2)).drain());
}

TEST(CoordinatorEvict, FencesOffTheIncarnation) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_OK(run.core().Evict("a", "hangs", run.now(), run.effects()));
  EXPECT_THAT(run.Heartbeat(a), IsAborted("hangs"));
  EXPECT_EQ(run.Join("a").incarnation(), 2);
}

TEST(CoordinatorEvict, AnIslandThatFailedIsMissedToo) {
  CoordinatorDriver run({});
  v1::LeaveRequest leave;
  *leave.mutable_identity() = run.Join("a");
  leave.set_reason("failed: no memory");
  ASSERT_OK(run.core().Leave(leave, run.now(), run.effects()));
  EXPECT_EQ(run.CountEvents("island_failed"), 1);
  const Member& member = run.core().membership().members().at("a");
  EXPECT_TRUE(IsMissed(member.state, member.reason)) << member.reason;
  ASSERT_OK(run.core().Evict("a", "sold", run.now(), run.effects()));
  EXPECT_FALSE(IsMissed(member.state, member.reason));
}

// An island that disappears is missed until it comes back or an operator says
// that it will not.
TEST(CoordinatorEvict, AnEvictedIslandIsNoLongerMissed) {
  CoordinatorDriver run({});
  run.Join("a");
  run.Advance(CoordinatorDriver::kLease + absl::Seconds(1));
  run.Tick();
  const Member& member = run.core().membership().members().at("a");
  ASSERT_TRUE(IsMissed(member.state, member.reason)) << member.reason;
  ASSERT_OK(run.core().Evict("a", "sold", run.now(), run.effects()));
  EXPECT_FALSE(IsMissed(member.state, member.reason));
  EXPECT_EQ(member.state, v1::IslandStatus::EVICTED);
  EXPECT_EQ(member.reason, "by an operator: sold");
  EXPECT_EQ(run.effects().ended.back().reason, member.reason);
  EXPECT_THAT(run.core().Evict("a", "", run.now(), run.effects()),
              IsAlreadyExists("sold"));
  EXPECT_EQ(run.Join("a").incarnation(), 2);
}

// A run of islands a and b that has merged one round.
class QuarantineTest : public testing::Test {
 protected:
  QuarantineTest() : run_({.rounds = 90}) {
    a_ = run_.Join("a");
    b_ = run_.Join("b", 7);
    // b joined while a's window was under way.
    CHECK(run_.Contribute(Contribution(a_, 0)).ok());
    run_.Commit();
  }

  // Merges the next rounds, of a, and of b while it may contribute.
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t version = run_.version();
      if (run_.core().Check(b_).ok()) {
        ASSERT_OK(run_.Contribute(Contribution(b_, version)));
      }
      ASSERT_OK(run_.Contribute(Contribution(a_, version)));
      run_.Commit();
    }
  }
  v1::TokenLedger LedgerOf(const v1::IslandIdentity& island) {
    return run_.core().IslandLedger({island.island_id(), island.incarnation()});
  }

  CoordinatorDriver run_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
};

TEST_F(QuarantineTest, HoldsNonFiniteValuesAndFencesTheirIslandOff) {
  const auto bad = Contribution(b_, 1);
  EXPECT_THAT(run_.Contribute(bad, kNaN),
              IsOutOfRange("a value of it is not finite"));
  EXPECT_THAT(run_.Heartbeat(b_), IsOutOfRange());
  // The same process still has the same replica.
  EXPECT_THAT(run_.TryJoin("b", 7), IsOutOfRange());
  EXPECT_EQ(run_.Join("b", 8).incarnation(), 2);
  ASSERT_EQ(run_.core().quarantine().entries().size(), 1);
  EXPECT_THAT(run_.core().Admit(1, run_.now(), run_.effects()),
              IsFailedPrecondition());
  const v1::TokenLedger held = LedgerOf(b_);
  EXPECT_EQ(held.quarantined(), 1000);
  EXPECT_EQ(held.reported(), SumOfFates(held));
}

TEST_F(QuarantineTest, HoldsNormsFarFromTheMedian) {
  Rounds(4);
  EXPECT_THAT(run_.Contribute(Contribution(b_, run_.version()), 10.5),
              IsOutOfRange("more than 10 times the median"));
  // The round continues without it.
  Rounds(1);
  EXPECT_EQ(run_.core().quarantine().held_count(), 1);
}

// A hostile island's claims must not move the limit.
TEST(CoordinatorQuarantine, ClaimsOfStepsAreBoundedByWhatTheCoordinatorKnows) {
  CoordinatorDriver run({.min_islands = 2, .rounds = 9});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  for (const uint64_t version : {0, 1}) {
    ASSERT_OK(run.Contribute(Contribution(a, version)));
    ASSERT_OK(run.Contribute(Contribution(b, version)));
    run.Commit();
  }
  v1::ContributionHeader claim = Contribution(b, 2);
  claim.set_inner_steps(uint64_t{1} << 63);
  EXPECT_THAT(run.Contribute(claim, 1e17),
              IsInvalidArgument("allowed: up to 180"));
  claim.set_inner_steps(180);
  EXPECT_THAT(run.Contribute(claim, 11),
              IsOutOfRange("more than 10 times the median"));
}

TEST(CoordinatorQuarantine, TheFirstOnesAreComparedWithTheParameters) {
  CoordinatorDriver run({.parameter_norm = 3});
  EXPECT_OK(run.Contribute(Contribution(run.Join("a"), 0), 30));
  CoordinatorDriver other({.parameter_norm = 3});
  EXPECT_THAT(other.Contribute(Contribution(other.Join("a"), 0), 1e30),
              IsOutOfRange("more than 10 times that of the parameters"));
  // Fragments that begin with zeros are compared with a change of 0.1 in each
  // of their four values.
  CoordinatorDriver zeros({.parameter_norm = 0});
  EXPECT_OK(zeros.Contribute(Contribution(zeros.Join("a"), 0), 1.9));
  CoordinatorDriver more({.parameter_norm = 0});
  EXPECT_THAT(more.Contribute(Contribution(more.Join("a"), 0), 2.1),
              IsOutOfRange());
}

TEST_F(QuarantineTest, AdmittedOnesAreMergedIntoTheOpenRound) {
  Rounds(4);
  const auto held = Contribution(b_, run_.version());
  ASSERT_FALSE(run_.Contribute(held, 100).ok());
  Rounds(1);
  ASSERT_OK_AND_ASSIGN(const ContributionKey key,
                       run_.core().Admit(1, run_.now(), run_.effects()));
  EXPECT_EQ(key.base_version, run_.version());
  EXPECT_EQ(run_.core().quarantine().held_count(), 0) << "it is decided";
  EXPECT_EQ(run_.core().quarantine().held_since(), absl::InfiniteFuture());
  EXPECT_THAT(run_.core().Drop(1, run_.effects()), IsFailedPrecondition());
  ASSERT_OK(run_.Contribute(Contribution(a_, run_.version())));
  ASSERT_EQ(run_.closed_rounds().size(), 1);
  EXPECT_THAT(run_.closed_rounds()[0].admitted, ElementsAre(1));
  EXPECT_THAT(run_.closed_rounds()[0].norms, ElementsAre(1, 100));
  EXPECT_EQ(LedgerOf(b_).quarantined(), 1000) << "not merged yet";
  const IncarnationKey island{"b", b_.incarnation()};
  EXPECT_TRUE(
      run_.core().quarantine().WasAdmitted(island, held.object().digest()));
  EXPECT_FALSE(run_.core().quarantine().WasAdmitted(
      island, Contribution(b_, 1).object().digest()));
  run_.Commit();
  const v1::TokenLedger merged = LedgerOf(b_);
  EXPECT_EQ(merged.merged(), 5000);
  EXPECT_EQ(merged.quarantined(), 0);
  EXPECT_EQ(merged.reported(), SumOfFates(merged));
  EXPECT_EQ(run_.core().quarantine().entries().at(1).state,
            v1::QuarantinedContribution::ADMITTED);
}

TEST_F(QuarantineTest, NothingIsAdmittedToAFinishedFragment) {
  Rounds(4);
  ASSERT_FALSE(run_.Contribute(Contribution(b_, run_.version()), 100).ok());
  Rounds(90 - static_cast<int>(run_.version()));
  ASSERT_EQ(run_.core().run_state(), v1::FINISHED);
  EXPECT_THAT(run_.core().Admit(1, run_.now(), run_.effects()).status(),
              IsFailedPrecondition("has its last version, 90"));
  EXPECT_OK(run_.core().Drop(1, run_.effects()));
}

TEST_F(QuarantineTest, AnEndedIncarnationsContributionIsLeftOutAndExpires) {
  ASSERT_OK(run_.Heartbeat(b_, 10, 1000));
  ASSERT_OK(run_.Contribute(Contribution(b_, 1), 3e38));
  ASSERT_OK(run_.Leave(b_));
  const v1::IslandIdentity successor = run_.Join("b", 8);
  ASSERT_OK(run_.Contribute(Contribution(a_, 1), 1));
  EXPECT_EQ(LedgerOf(b_).pending(), 1000);
  run_.Fail(absl::OutOfRangeError("the result is not finite"));
  EXPECT_THAT(run_.core().quarantine().entries(), IsEmpty());
  EXPECT_EQ(run_.CountEvents("contribution_late"), 1);
  EXPECT_OK(run_.core().Check(successor));
  run_.Commit();
  const v1::TokenLedger ledger = LedgerOf(b_);
  EXPECT_EQ(ledger.expired(), 1000);
  EXPECT_EQ(ledger.reported(), 1000);
}

// A contribution that was left out counts once when any process contributes it
// again.
TEST_F(QuarantineTest, ALeftOutContributionCountsWhenContributedAgain) {
  for (const bool same_process : {true, false}) {
    SCOPED_TRACE(same_process ? "same process" : "with its checkpoint");
    const std::string name = same_process ? "c" : "d";
    const v1::IslandIdentity first = run_.Join(name, 1);
    Rounds(1);  // The joiner is expected from the next one on.
    const uint64_t version = run_.version();
    ASSERT_OK(run_.Heartbeat(first, 10, 1000));
    ASSERT_OK(run_.Contribute(Contribution(first, version), 5));
    ASSERT_OK(run_.core().Evict(name, "", run_.now(), run_.effects()));
    const v1::IslandIdentity second = run_.Join(name, same_process ? 1 : 2);
    for (const v1::IslandIdentity& island : {b_, a_}) {
      ASSERT_OK(run_.Contribute(Contribution(island, version)));
    }
    run_.Fail(absl::OutOfRangeError("the result is not finite"));
    EXPECT_EQ(LedgerOf(second).pending(), same_process ? 1000 : 0);
    EXPECT_EQ(LedgerOf(first).expired(), same_process ? 0 : 1000);
    run_.Commit();

    auto again = Contribution(second, version + 1, 0, "again");
    again.set_tokens(1200);
    again.set_restored_tokens(same_process ? 0 : 1000);
    ASSERT_OK(run_.Heartbeat(second, 12, same_process ? 1200 : 200));
    ASSERT_OK(run_.Contribute(again));
    Rounds(1);
    const v1::TokenLedger ledger = LedgerOf(second);
    EXPECT_EQ(ledger.merged(), 1200);
    EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
    EXPECT_EQ(ledger.reported() + LedgerOf(first).reported(), 1200);
    ASSERT_OK(run_.Leave(second));
  }
}

TEST(CoordinatorQuarantine, AnIslandTurnedAwayMayOfferWhenTheRoundReopens) {
  CoordinatorDriver run({.min_islands = 3, .quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  ASSERT_OK(run.Contribute(Contribution(b, 0), 3e38));
  run.Pass(CoordinatorDriver::kGrace, {a, b, c});
  EXPECT_THAT(run.Contribute(Contribution(c, 0)), IsOkAndHolds(Verdict::LATE));
  run.Fail(absl::OutOfRangeError("the result is not finite"));
  // It waits for an update that cannot be made without its contribution.
  EXPECT_THAT(run.core().Check(c), IsAborted("is open again"));
  const v1::IslandIdentity again = run.Join("c");
  ASSERT_OK(run.Heartbeat(again));
  EXPECT_THAT(run.Contribute(Contribution(again, 0)),
              IsOkAndHolds(Verdict::ACCEPTED));
  run.Commit();
  EXPECT_EQ(run.version(), 1);
}

TEST(CoordinatorQuarantine, ARoundThatKeepsItsQuorumClosesAtOnce) {
  CoordinatorDriver run({.min_islands = 4, .quorum = 2});
  std::vector<v1::IslandIdentity> islands;
  for (const char* name : {"a", "b", "c", "late"}) {
    islands.push_back(run.Join(name));
  }
  ASSERT_OK(run.Contribute(Contribution(islands[0], 0)));
  ASSERT_OK(run.Contribute(Contribution(islands[1], 0)));
  ASSERT_OK(run.Contribute(Contribution(islands[2], 0), 3e38));
  run.Pass(CoordinatorDriver::kGrace, islands);
  ASSERT_THAT(run.Contribute(Contribution(islands[3], 0)),
              IsOkAndHolds(Verdict::LATE));
  run.Fail(absl::OutOfRangeError("the result is not finite"));
  EXPECT_OK(run.core().Check(islands[3])) << "the round closes without it";
  ASSERT_EQ(run.closed_rounds().size(), 1);
  EXPECT_EQ(run.closed_rounds()[0].contributions.size(), 2);
}

TEST_F(QuarantineTest, AnIslandOffersItsOwnIfItsStandInIsSetAside) {
  ASSERT_OK(run_.Contribute(Contribution(b_, 1), 3e38));
  ASSERT_OK(run_.Leave(b_));
  const v1::IslandIdentity successor = run_.Join("b", 8);
  ASSERT_OK_AND_ASSIGN(const auto answer,
                       run_.Offer(Contribution(successor, 1, 0, "other")));
  EXPECT_EQ(answer.verdict(), v1::ContributeResponse::LATE);
  ASSERT_OK(run_.Contribute(Contribution(a_, 1), 1));
  run_.Fail(absl::OutOfRangeError("the result is not finite"));
  EXPECT_THAT(run_.core().Check(successor), IsAborted("may offer its own"));
}

}  // namespace
}  // namespace causeway
