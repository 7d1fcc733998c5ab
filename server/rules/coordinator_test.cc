// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests of the rules of a run, one scenario each. tests/simulation plays random
// histories.
#include "server/rules/coordinator.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr auto kAccepted = v1::ContributeResponse::ACCEPTED;
constexpr auto kLate = v1::ContributeResponse::LATE;
constexpr auto kUpload = v1::ContributeResponse::UPLOAD;
constexpr absl::Duration kLease = CoordinatorDriver::kLease;
constexpr absl::Duration kGrace = CoordinatorDriver::kGrace;

std::vector<std::string> IslandsOf(const ClosedRound& closed) {
  std::vector<std::string> islands;
  for (const v1::ContributionHeader& header : closed.contributions) {
    islands.push_back(header.identity().island_id());
  }
  return islands;
}

// --- How a run begins and ends. ---

TEST(CoordinatorTest, ARunStartsWithTheLastOfItsFirstIslands) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  EXPECT_EQ(run.core().run_state(), v1::WAITING_FOR_ISLANDS);
  EXPECT_THAT(run.Contribute(Contribution(a, 0)),
              IsUnavailable("waits for 2 islands"));
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, run.TryJoin("b", 2));
  const v1::IslandIdentity b = joined.identity();
  EXPECT_EQ(run.core().run_state(), v1::WAITING_FOR_ISLANDS) << "b still loads";
  run.BeReady(joined);
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_EQ(run.CountEvents("run_started"), 1);
  // Both are expected in the first round.
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a", "b"));
  // The run continues with the remaining islands.
  EXPECT_OK(run.Leave(b));
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
}

TEST(CoordinatorTest, IslandsOfARetriedJoinAreCountedOnce) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a", /*instance=*/7);
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse again, run.TryJoin("a", 7));
  EXPECT_EQ(again.identity().incarnation(), a.incarnation());
  EXPECT_EQ(run.core().run_state(), v1::WAITING_FOR_ISLANDS);
  EXPECT_EQ(run.CountEvents("island_joined"), 1);
  EXPECT_THAT(run.effects().joined, SizeIs(1));
}

TEST(CoordinatorTest, IslandsHearHowManyAreMissing) {
  CoordinatorDriver run({.min_islands = 3, .quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  EXPECT_EQ(run.core().View(a).islands_missing(), 2) << "to begin";
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  EXPECT_EQ(run.core().View(a).islands_missing(), 0);
  ASSERT_OK(run.Leave(b));
  ASSERT_OK(run.Leave(c));
  EXPECT_EQ(run.core().View(a).islands_missing(), 1) << "for a round";
}

TEST(CoordinatorTest, ARunIsFinishedWithTheLastVersionOfEveryFragment) {
  CoordinatorDriver run({.fragments = 2, .rounds = 1});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_THAT(run.Contribute(Contribution(a, 0, 0)), IsOkAndHolds(kAccepted));
  run.Commit();
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  // A fragment that has its last version takes no contributions.
  EXPECT_THAT(run.Contribute(Contribution(a, 1, 0)),
              IsFailedPrecondition("last version"));
  ASSERT_THAT(run.Contribute(Contribution(a, 0, 1)), IsOkAndHolds(kAccepted));
  run.Commit();
  EXPECT_EQ(run.core().run_state(), v1::FINISHED);
  EXPECT_EQ(run.CountEvents("run_finished"), 1);
  EXPECT_THAT(run.TryJoin("b", 1), IsFailedPrecondition("run-1 is finished"));
  EXPECT_THAT(run.Contribute(Contribution(a, 0, 1, "late")),
              IsOkAndHolds(kLate));
  EXPECT_THAT(run.Contribute(Contribution(a, 1, 1)), IsFailedPrecondition());
  EXPECT_OK(run.Heartbeat(a));
  EXPECT_OK(run.Leave(a));
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
}

// --- When a round closes. ---

TEST(CoordinatorTest, ARoundClosesWhenAllExpectedHaveContributed) {
  CoordinatorDriver run({.min_islands = 3});
  const v1::IslandIdentity c = run.Join("c");
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(c, 0)), IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a"));
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_EQ(run.closed_rounds()[0].base_version, 0);
  EXPECT_THAT(IslandsOf(run.closed_rounds()[0]), ElementsAre("a", "b", "c"));
  run.Commit();
  EXPECT_EQ(run.version(), 1);
  EXPECT_EQ(run.core().membership().members().at("b").tokens_merged, 1000);
  EXPECT_EQ(run.core().membership().members().at("b").contributions_merged, 1);
  EXPECT_THAT(run.effects().discarded, SizeIs(3)) << "memory is given back";
}

TEST(CoordinatorTest, AQuorumClosesTheRoundAfterTheGraceWindow) {
  CoordinatorDriver run({.min_islands = 3, .quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  const std::vector<v1::IslandIdentity> all = {a, b, c};
  run.Pass(2 * kGrace, all);
  EXPECT_THAT(run.closed_rounds(), IsEmpty()) << "closed below the quorum";
  ASSERT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  run.Pass(kGrace - absl::Seconds(5), all);
  EXPECT_THAT(run.closed_rounds(), IsEmpty())
      << "closed before the grace window";
  run.Pass(absl::Seconds(5), all);
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));

  // A contribution that comes during the merge or later is late, and its bytes
  // are not kept.
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse during,
                       run.Offer(Contribution(c, 0)));
  EXPECT_EQ(during.verdict(), kLate);
  run.Commit();
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse after,
                       run.Complete(Contribution(c, 0)));
  EXPECT_EQ(after.verdict(), kLate);
  EXPECT_THAT(run.effects().discarded, Contains(KeyOf(Contribution(c, 0))));
  EXPECT_EQ(run.CountEvents("contribution_late"), 1);
  EXPECT_EQ(run.core().membership().members().at("a").tokens_merged, 1000);
  EXPECT_EQ(run.core().membership().members().at("c").tokens_merged, 0);
  // Its island is expected again in the next round.
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a", "b", "c"));
}

TEST(CoordinatorTest, ADeadIslandHoldsTheRoundNoLongerThanItsLease) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  run.Advance(kLease);
  ASSERT_OK(run.Heartbeat(a));
  run.Tick();
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  run.Advance(absl::Milliseconds(1));
  run.Tick();
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_THAT(IslandsOf(run.closed_rounds()[0]), ElementsAre("a"));
  EXPECT_EQ(run.CountEvents("island_evicted"), 1);
  ASSERT_THAT(run.effects().ended, SizeIs(1));
  EXPECT_EQ(run.effects().ended[0].state, v1::IslandStatus::EVICTED);
  // The evicted incarnation can do nothing any more.
  for (const absl::Status& status :
       {run.Heartbeat(b), run.Leave(b),
        run.Contribute(Contribution(b, 0)).status(), run.core().Check(b)}) {
    EXPECT_THAT(status, IsAborted());
  }
}

// An island's heartbeats may have to wait behind its upload.
TEST(CoordinatorTest, AnOfferKeepsTheLease) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  run.Join("b");
  run.Advance(kLease);
  ASSERT_OK(run.Offer(Contribution(a, 0)));
  run.Advance(kLease);
  run.Tick();
  EXPECT_OK(run.core().Check(a));
  EXPECT_EQ(run.CountEvents("island_evicted"), 1);
  run.Advance(absl::Milliseconds(1));
  run.Tick();
  EXPECT_EQ(run.CountEvents("island_evicted"), 2);
}

TEST(CoordinatorTest, AnIslandThatLeavesIsNotAwaitedButCounts) {
  CoordinatorDriver run({.min_islands = 3});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const v1::IslandIdentity c = run.Join("c");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(run.Leave(a));
  ASSERT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  ASSERT_OK(run.Leave(c));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_THAT(IslandsOf(run.closed_rounds()[0]), ElementsAre("a", "b"));
}

TEST(CoordinatorTest, UploadsOfIslandsThatLeftGiveTheirMemoryBack) {
  CoordinatorDriver run({.min_islands = 2, .fragments = 2});
  const v1::IslandIdentity a = run.Join("a");
  run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a, 0, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse begun,
                       run.Offer(Contribution(a, 0, 1)));
  ASSERT_EQ(begun.verdict(), kUpload);
  ASSERT_OK(run.Leave(a));
  // The contribution in the round stays; the other will never be completed.
  EXPECT_THAT(run.effects().discarded,
              AllOf(Contains(KeyOf(Contribution(a, 0, 1))),
                    Not(Contains(KeyOf(Contribution(a, 0, 0))))));
}

// --- Islands that come and go. ---

TEST(CoordinatorTest, AJoinerIsExpectedFromTheNextRoundOn) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  EXPECT_THAT(run.core().View(b).first_contribution_version(), ElementsAre(1));
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a"));
  EXPECT_THAT(run.Contribute(Contribution(b, 0)),
              IsUnavailable("builds on version 1"));
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  run.Commit();
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a", "b"));
}

TEST(CoordinatorTest, AnIslandThatIsNotReadyIsNotAwaited) {
  CoordinatorDriver run({.quorum = 2, .rounds = 9});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, run.TryJoin("c", 3));
  const v1::IslandIdentity c = joined.identity();
  EXPECT_THAT(joined.first_contribution_version(),
              ElementsAre(Member::kNotExpected));
  for (uint64_t version = 0; version < 3; ++version) {
    run.Pass(kGrace, {a, b, c});
    EXPECT_THAT(run.core().Awaited(0), Not(Contains("c")));
    EXPECT_THAT(run.Contribute(Contribution(c, version)),
                IsUnavailable("ready"));
    ASSERT_THAT(run.Contribute(Contribution(a, version)),
                IsOkAndHolds(kAccepted));
    ASSERT_THAT(run.closed_rounds(), SizeIs(0));
    ASSERT_THAT(run.Contribute(Contribution(b, version)),
                IsOkAndHolds(kAccepted));
    // No island is awaited.
    ASSERT_THAT(run.closed_rounds(), SizeIs(1)) << version;
    run.Commit();
  }
  ASSERT_OK(run.Leave(b));
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a"));
  // It is expected from the next round on, or at once if it is needed.
  run.BeReady(joined);
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a", "c"));
  ASSERT_THAT(run.effects().changed, SizeIs(3));
  EXPECT_THAT(run.effects().changed.back().first_contribution_version,
              ElementsAre(4));
  // A second report changes nothing.
  run.BeReady(joined);
  EXPECT_THAT(run.effects().changed, SizeIs(3));
}

TEST(CoordinatorTest, EachIncarnationMustBeReadyAnew) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Leave(b));
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse again, run.TryJoin("b", 2));
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  run.Commit();
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a"));
  run.BeReady(again);
  ASSERT_THAT(run.Contribute(Contribution(a, 1)), IsOkAndHolds(kAccepted));
  run.Commit();
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("a", "b"));
}

TEST(CoordinatorTest, AJoinerClosesARoundThatNoOtherIslandCanClose) {
  CoordinatorDriver run({});
  run.Join("a");
  const v1::IslandIdentity b = run.Join("b", 2);
  run.Advance(kLease);
  ASSERT_OK(run.Heartbeat(b));
  run.Advance(absl::Seconds(1));
  run.Tick();
  EXPECT_EQ(run.CountEvents("island_evicted"), 1);
  EXPECT_THAT(run.core().View(b).first_contribution_version(), ElementsAre(0));
  EXPECT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  EXPECT_THAT(run.closed_rounds(), SizeIs(1));
}

TEST(CoordinatorTest, AJoinerIsExpectedAtOnceIfNoIslandIsLeft) {
  CoordinatorDriver run({});
  ASSERT_OK(run.Leave(run.Join("a")));
  const v1::IslandIdentity b = run.Join("b");
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("b"));
  EXPECT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
}

TEST(CoordinatorTest, BytesOfAnEarlierIncarnationAreCountedOnce) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a1 = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a1, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(run.Leave(a1));
  // The process was only out of touch, and offers the same contribution again.
  const v1::IslandIdentity a2 = run.Join("a");
  EXPECT_THAT(run.Contribute(Contribution(a2, 0)), IsOkAndHolds(kAccepted));
  EXPECT_THAT(run.core().round(0).contributions(), SizeIs(1));
  ASSERT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_THAT(IslandsOf(run.closed_rounds()[0]), ElementsAre("a", "b"));
  // The answer is the same while it is merged.
  EXPECT_THAT(run.Contribute(Contribution(a2, 0)), IsOkAndHolds(kAccepted));
  EXPECT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  EXPECT_EQ(run.closed_rounds()[0].contributions.size(), 2);
}

TEST(CoordinatorTest, OneContributionOfAnIslandCountsWhateverItsBytes) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a1 = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a1, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(run.Leave(a1));
  // The process went back to a checkpoint: its window contains the earlier one.
  const v1::IslandIdentity a2 = run.Join("a");
  v1::ContributionHeader again = Contribution(a2, 0);
  again.mutable_object()->set_digest("0123456789abcdef");
  EXPECT_THAT(run.Contribute(again),
              IsOkAndHolds(v1::ContributeResponse::LATE));
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("b"));
  ASSERT_THAT(run.Contribute(Contribution(b, 0)), IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_THAT(IslandsOf(run.closed_rounds()[0]), ElementsAre("a", "b"));
}

TEST(CoordinatorTest, AProcessThatIsKnownToBeDeadIsReplacedAtOnce) {
  CoordinatorDriver run({});
  run.Join("a", 1);
  v1::JoinRequest request;
  request.set_island_id("a");
  request.set_instance_id(2);
  Effects effects;
  // No process can replace one that is not there.
  request.set_replaces_instance_id(3);
  EXPECT_EQ(run.core().Join(request, run.now(), effects).status().code(),
            absl::StatusCode::kResourceExhausted);
  request.set_replaces_instance_id(1);
  const auto joined = run.core().Join(request, run.now(), effects);
  ASSERT_OK(joined.status());
  EXPECT_EQ(joined->identity().incarnation(), 2);
  EXPECT_THAT(effects.ended, SizeIs(1));
  // A retry of the same process replaces no other.
  const auto retried = run.core().Join(request, run.now(), effects);
  ASSERT_OK(retried.status());
  EXPECT_EQ(retried->identity().incarnation(), 2);
  EXPECT_THAT(effects.ended, SizeIs(1));
}

TEST(CoordinatorTest, AnIslandThatReturnsTakesOverTheRunsPosition) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_OK(run.Heartbeat(a, /*run_step=*/7));
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse b, run.TryJoin("b", 2));
  EXPECT_EQ(b.run_step(), 7);
  // The run's position is not past the send of a round that is still open, ...
  ASSERT_OK(run.Heartbeat(a, 10));
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse c, run.TryJoin("c", 3));
  EXPECT_EQ(c.run_step(), 9);
  // ... nor behind the training that the parameters contain.
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  run.Commit();
  ASSERT_OK(run.Heartbeat(a, 3));
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse d, run.TryJoin("d", 4));
  EXPECT_EQ(d.run_step(), 10);
}

TEST(CoordinatorTest, ARestartContinuesWithTheMembersItRemembers) {
  CoordinatorDriver before({.min_islands = 2});
  const v1::IslandIdentity a = before.Join("a");
  const v1::IslandIdentity b = before.Join("b");
  ASSERT_THAT(before.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(before.Leave(b));
  before.Commit();

  CoordinatorDriver after({.min_islands = 2}, before.core().heads(),
                          {before.core().membership().members().at("a"),
                           before.core().membership().members().at("b")});
  EXPECT_EQ(after.version(), 1);
  EXPECT_EQ(after.core().run_state(), v1::RUNNING) << "it had started";
  EXPECT_OK(after.Heartbeat(a));
  EXPECT_THAT(after.Heartbeat(b), IsAborted());
  EXPECT_EQ(after.Join("b").incarnation(), 2);
  EXPECT_THAT(after.Contribute(Contribution(a, 0)), IsOkAndHolds(kLate));
  EXPECT_THAT(after.Contribute(Contribution(a, 1)), IsOkAndHolds(kAccepted));
}

TEST(CoordinatorTest, AMemberThatWasAwayTooLongAfterARestartIsEvicted) {
  CoordinatorDriver before({.min_islands = 2});
  const v1::IslandIdentity a = before.Join("a");
  before.Join("b");
  std::vector<Member> members;
  for (const auto& [name, member] : before.core().membership().members()) {
    members.push_back(member);
  }
  CoordinatorDriver after({.min_islands = 2}, before.core().heads(), members);
  after.Advance(kLease);
  ASSERT_OK(after.Heartbeat(a));
  after.Advance(absl::Seconds(1));
  after.Tick();
  EXPECT_EQ(after.CountEvents("island_evicted"), 1);
  EXPECT_EQ(after.core().run_state(), v1::RUNNING);
}

// --- Problems of an island's ranks. ---

TEST(CoordinatorTest, ATroubleOfRanksIsRecordedWhenItChanges) {
  CoordinatorDriver run({.min_islands = 1});
  const v1::IslandIdentity a = run.Join("a");
  v1::IslandProgress progress;
  ASSERT_OK(run.Heartbeat(a, progress));
  v1::RankTrouble& trouble = *progress.mutable_rank_trouble();
  trouble.set_kind(v1::RankTrouble::SLOW_RANK);
  trouble.set_rank(1);
  trouble.set_share(0.5);
  ASSERT_OK(run.Heartbeat(a, progress));
  trouble.set_share(0.6);
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_EQ(run.CountEvents("rank_slow"), 1);
  trouble.set_rank(2);
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_EQ(run.CountEvents("rank_slow"), 2);
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_EQ(run.CountEvents("link_slow"), 1);
  EXPECT_EQ(run.CountEvents("ranks_even"), 0);
  progress.clear_rank_trouble();
  ASSERT_OK(run.Heartbeat(a, progress));
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_EQ(run.CountEvents("ranks_even"), 1);
}

TEST(CoordinatorTest, ARankThatEndsItsIslandIsRecorded) {
  for (const auto& [kind, event] :
       {std::pair(v1::RankTrouble::STUCK_RANK, "rank_stuck"),
        std::pair(v1::RankTrouble::DEAD_RANK, "rank_dead")}) {
    CoordinatorDriver run({.min_islands = 1});
    const v1::IslandIdentity a = run.Join("a");
    v1::RankTrouble trouble;
    trouble.set_kind(kind);
    trouble.set_rank(3);
    ASSERT_OK(run.Leave(a, trouble));
    EXPECT_EQ(run.CountEvents(event), 1);
    EXPECT_EQ(run.CountEvents("island_left"), 1);
  }
}

TEST(CoordinatorTest, AnIslandThatWasStartedAgainSaysWhichRankItWas) {
  for (const auto& [kind, event] :
       {std::pair(v1::RankTrouble::DEAD_RANK, "rank_dead"),
        std::pair(v1::RankTrouble::RETURNED_RANK, "rank_back")}) {
    CoordinatorDriver run({.min_islands = 1});
    const v1::IslandIdentity a = run.Join("a");
    v1::IslandProgress progress;
    progress.mutable_rank_trouble()->set_kind(kind);
    ASSERT_OK(run.Heartbeat(a, progress));
    progress.clear_rank_trouble();
    ASSERT_OK(run.Heartbeat(a, progress));
    EXPECT_EQ(run.CountEvents(event), 1);
    EXPECT_EQ(run.CountEvents("ranks_even"), 0);
  }
}

}  // namespace
}  // namespace causeway
