// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests of the rules when something goes wrong: contributions that are refused,
// outer steps that fail, fragments that wait for one another.
#include <cstdint>
#include <functional>
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
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr auto kAccepted = v1::ContributeResponse::ACCEPTED;

void SetRankEnds(v1::ContributionHeader& header,
                 const std::vector<uint64_t>& ends) {
  header.mutable_rank_ends()->Assign(ends.begin(), ends.end());
}

TEST(CoordinatorFaultsTest, TakesTheRanksPartsAndDoesNotKeepThem) {
  CoordinatorDriver run({.min_islands = 2});
  v1::ContributionHeader header = Contribution(run.Join("a"), 0);
  run.Join("b");
  std::vector<uint64_t> ends(2048, 2);
  ends.front() = 0;
  ends.back() = 4;
  SetRankEnds(header, ends);
  ASSERT_THAT(run.Contribute(header), IsOkAndHolds(kAccepted));
  EXPECT_EQ(
      run.core().round(0).contributions().begin()->second.rank_ends_size(), 0);
}

TEST(CoordinatorFaultsTest, RefusesInvalidContributionsAndSaysWhy) {
  struct Case {
    std::string what;
    std::function<void(v1::ContributionHeader&)> spoil;
    absl::StatusCode code;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"other run", [](auto& h) { h.mutable_identity()->set_run_id("run-2"); },
       absl::StatusCode::kFailedPrecondition, "run-2"},
      {"other incarnation",
       [](auto& h) { h.mutable_identity()->set_incarnation(9); },
       absl::StatusCode::kAborted, "fenced off"},
      {"unknown fragment", [](auto& h) { h.set_fragment(1); },
       absl::StatusCode::kInvalidArgument, "no fragment 1"},
      {"newer version", [](auto& h) { h.set_base_version(1); },
       absl::StatusCode::kOutOfRange, " was lost with "},
      {"no tokens", [](auto& h) { h.set_tokens(0); },
       absl::StatusCode::kInvalidArgument, "0 tokens"},
      {"no inner steps", [](auto& h) { h.set_inner_steps(0); },
       absl::StatusCode::kInvalidArgument, "0 inner steps"},
      {"other format",
       [](auto& h) { h.mutable_object()->set_format(v1::BF16); },
       absl::StatusCode::kFailedPrecondition, "BF16"},
      {"other size", [](auto& h) { h.mutable_object()->set_size(5); },
       absl::StatusCode::kInvalidArgument, "5 values"},
      {"other length",
       [](auto& h) { h.mutable_object()->set_encoded_bytes(15); },
       absl::StatusCode::kInvalidArgument, "15 bytes"},
      {"no digest", [](auto& h) { h.mutable_object()->clear_digest(); },
       absl::StatusCode::kInvalidArgument, "digest"},
      {"parts in another order",
       [](auto& h) {
         SetRankEnds(h, {3, 2, 4});
       },
       absl::StatusCode::kInvalidArgument, "rank_ends[1], 2, is below"},
      {"parts of less",
       [](auto& h) {
         SetRankEnds(h, {0, 3});
       },
       absl::StatusCode::kInvalidArgument, "ends with 3"},
      {"parts of more",
       [](auto& h) {
         SetRankEnds(h, {4, UINT64_MAX});
       },
       absl::StatusCode::kInvalidArgument, "has 4 values"},
      {"too many parts",
       [](auto& h) { SetRankEnds(h, std::vector<uint64_t>(2049, 4)); },
       absl::StatusCode::kInvalidArgument, "at most 2048"},
  };
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    v1::ContributionHeader header = Contribution(a, 0);
    c.spoil(header);
    EXPECT_THAT(run.Offer(header), StatusIs(c.code, HasSubstr(c.message)));
    EXPECT_THAT(run.Complete(header), StatusIs(c.code, HasSubstr(c.message)));
  }
  EXPECT_THAT(run.core().round(0).contributions(), IsEmpty());
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  EXPECT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
}

TEST(CoordinatorFaultsTest, AContributionSentTwiceIsCountedOnce) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  run.Join("b");
  const v1::ContributionHeader header = Contribution(a, 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse response,
                         run.Complete(header));
    EXPECT_EQ(response.verdict(), kAccepted);
  }
  // Other bytes of the incarnation are not accepted either.
  EXPECT_THAT(run.Contribute(Contribution(a, 0, 0, "other")),
              IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.core().round(0).contributions(), SizeIs(1));
  EXPECT_EQ(
      run.core().round(0).contributions().begin()->second.object().digest(),
      header.object().digest());
}

TEST(CoordinatorFaultsTest, AStopOfTheCoordinatorEndsNoGraceWindow) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  run.Advance(absl::Hours(1));
  run.core().ExtendLeases(absl::Hours(1), run.now());
  run.Tick();
  run.Pass(CoordinatorDriver::kGrace - absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), IsEmpty()) << "without b";
  run.Pass(absl::Seconds(5), {a, b});
  EXPECT_THAT(run.closed_rounds(), SizeIs(1));
}

TEST(CoordinatorFaultsTest, AFailedOuterStepSuspendsTheRunUntilOneSucceeds) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_THAT(run.closed_rounds(), SizeIs(1)) << "attempt " << attempt;
    EXPECT_THAT(run.closed_rounds()[0].contributions, SizeIs(1));
    run.Fail(absl::ResourceExhaustedError("disk full"));
    EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
    EXPECT_THAT(run.core().View(a).message(), HasSubstr("disk full"));
    EXPECT_EQ(run.version(), 0);
    run.Tick();
    EXPECT_THAT(run.closed_rounds(), IsEmpty())
        << "tried again without a pause";
    run.Advance(absl::Seconds(5));
    ASSERT_OK(run.Heartbeat(a));
    run.Tick();
  }
  EXPECT_EQ(run.CountEvents("run_suspended"), 1) << "said once, not each time";
  run.Commit();
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_EQ(run.core().View(a).message(), "");
  EXPECT_EQ(run.version(), 1);
}

TEST(CoordinatorFaultsTest, AnotherFragmentsCommitEndsNoSuspension) {
  CoordinatorDriver run({.fragments = 2});
  const v1::IslandIdentity a = run.Join("a");
  for (const uint32_t fragment : {0, 1}) {
    ASSERT_THAT(run.Contribute(Contribution(a, 0, fragment)),
                IsOkAndHolds(kAccepted));
  }
  ASSERT_THAT(run.closed_rounds(), SizeIs(2));
  run.Fail(absl::ResourceExhaustedError("disk full"));
  run.Commit();
  EXPECT_EQ(run.version(1), 1);
  EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
  EXPECT_THAT(run.core().message(), HasSubstr("disk full"));
  run.Advance(absl::Seconds(5));
  run.Tick();
  run.Commit();
  EXPECT_EQ(run.version(0), 1);
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_EQ(run.CountEvents("run_suspended"), 1);
}

TEST(CoordinatorFaultsTest, ARoundWhoseCommitIsInDoubtStaysClosed) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  run.Doubt(absl::UnknownError("outcome unknown"));
  EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
  EXPECT_THAT(run.core().View(a).message(), HasSubstr("outcome unknown"));
  run.Advance(absl::Seconds(6));
  ASSERT_OK(run.Heartbeat(a));
  run.Tick();
  EXPECT_TRUE(run.core().round(0).merging());
  ASSERT_THAT(run.closed_rounds(), SizeIs(1))
      << "ordered again before it is known";
  run.Commit();
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_EQ(run.version(), 1);
  EXPECT_EQ(run.CountEvents("run_suspended"), 1);
}

TEST(CoordinatorFaultsTest, TheRetryMergesAnIslandThatLeftMeanwhile) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(run.Leave(b));
  run.Fail(absl::InternalError("fsync"));
  const v1::IslandIdentity b2 = run.Join("b", /*instance=*/2);
  ASSERT_OK(run.Leave(a));  // Now b is the only one left.
  EXPECT_THAT(run.closed_rounds(), IsEmpty()) << "the pause is not over";
  run.Advance(absl::Seconds(5));
  ASSERT_OK(run.Heartbeat(b2));
  run.Tick();
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  EXPECT_EQ(run.closed_rounds()[0].contributions[0].identity().island_id(),
            "a");
  run.Commit();
  EXPECT_THAT(run.core().Awaited(0), ElementsAre("b"));
}

TEST(CoordinatorFaultsTest, AnOfferRepeatedDuringAMergeThatFailsCounts) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  for (const v1::IslandIdentity& island : {a, b}) {
    ASSERT_THAT(run.Contribute(Contribution(island, 0)),
                IsOkAndHolds(kAccepted));
  }
  ASSERT_OK(run.Leave(a));
  ASSERT_OK(run.core().Evict("b", "", run.now(), run.effects()));
  // The same process joins, and learns that its contribution is in the round.
  const v1::IslandIdentity again = run.Join("b");
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse answer,
                       run.Offer(Contribution(again, 0)));
  EXPECT_EQ(answer.verdict(), kAccepted);
  run.Fail(absl::InternalError("fsync"));
  EXPECT_THAT(run.core().Awaited(0), IsEmpty());
}

TEST(CoordinatorFaultsTest, ASuccessorAddsNothingToARoundThatItsIslandIsIn) {
  CoordinatorDriver run({.quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)), IsOkAndHolds(kAccepted));
  ASSERT_OK(run.Leave(a));
  run.Join("a", /*instance=*/2);
  // Its first round would be the next one, but no other island can close this
  // one.
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_OK(run.Heartbeat(b));
  EXPECT_EQ(run.core().View(b).first_contribution_version(0), 0);
}

TEST(CoordinatorFaultsTest, AnIslandHearsThatItIsExpectedEarlier) {
  CoordinatorDriver run({.quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  run.Join("c");
  const v1::IslandIdentity b = run.Join("b");
  EXPECT_EQ(run.core().View(b).first_contribution_version(0), 1);
  // Without b, the quorum of the open round cannot be reached.
  run.effects() = {};
  ASSERT_OK(run.Leave(a));
  EXPECT_EQ(run.core().View(b).first_contribution_version(0), 0);
  EXPECT_TRUE(run.effects().view_changed);
}

TEST(CoordinatorFaultsTest, FragmentsDoNotWaitForOneAnother) {
  CoordinatorDriver run({.min_islands = 2, .fragments = 3});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const auto both_contribute = [&](uint32_t fragment) {
    for (const v1::IslandIdentity& island : {a, b}) {
      ASSERT_THAT(
          run.Contribute(Contribution(island, run.version(fragment), fragment)),
          IsOkAndHolds(kAccepted));
    }
  };
  both_contribute(2);
  both_contribute(0);
  ASSERT_THAT(run.closed_rounds(), SizeIs(2));
  EXPECT_EQ(run.closed_rounds()[0].fragment, 2);
  run.Fail(absl::InternalError("fragment 2 cannot be written"));
  run.Commit();
  EXPECT_EQ(run.version(0), 1);
  EXPECT_EQ(run.version(1), 0);
  EXPECT_EQ(run.version(2), 0);
  both_contribute(0);
  run.Commit();
  EXPECT_EQ(run.version(0), 2);
  // A joiner is expected one version later in each fragment.
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse c, run.TryJoin("c", 3));
  EXPECT_THAT(c.heads(), SizeIs(3));
  run.BeReady(c);
  EXPECT_THAT(run.core().View(c.identity()).first_contribution_version(),
              ElementsAre(3, 1, 1));
}

}  // namespace
}  // namespace causeway
