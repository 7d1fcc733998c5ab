// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/expectations.h"

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kRoundSteps = 10;
constexpr absl::Duration kGrace = absl::Seconds(60);

class ExpectationsTest : public testing::Test {
 protected:
  ExpectationsTest() {
    config_.set_quorum(2);
    config_.set_grace_seconds(absl::ToDoubleSeconds(kGrace));
  }

  // Adds an island that is expected from version `first` on.
  void AddIsland(const std::string& name, uint64_t first) {
    membership_.Restore({.island_id = name,
                         .incarnation = 1,
                         .joined_at = now_,
                         .first_contribution_version = {first}},
                        now_);
  }
  Member& Find(const std::string& name) { return **membership_.FindLive(name); }
  void Contribute(const std::string& name, uint64_t incarnation = 1) {
    v1::ContributionHeader header;
    header.mutable_identity()->set_island_id(name);
    header.mutable_identity()->set_incarnation(incarnation);
    header.set_base_version(round_.base_version());
    round_.NoteHeard(name);
    round_.NoteOffer(name, now_);
    round_.Add(header, 1, now_);
  }

  v1::MembershipConfig config_;
  SyncSchedule schedule_ = *SyncSchedule::Create(
      {.round_steps = kRoundSteps, .send_offsets = {0}, .total_steps = 90});
  Membership membership_{{}};
  Expectations expectations_{&config_, &schedule_, &membership_};
  absl::Time now_ = absl::UnixEpoch();
  Round round_{{.quorum = 2, .grace = kGrace}, 0, 3};
};

TEST_F(ExpectationsTest, AnIslandIsExpectedAtOnceIfNoOtherTrains) {
  AddIsland("a", Member::kNotExpected);
  expectations_.Add(Find("a"), {3}, /*run_has_started=*/true);
  EXPECT_THAT(expectations_.Awaited(round_), ElementsAre("a"));
}

TEST_F(ExpectationsTest, NoIslandIsAwaitedAfterTheLastVersion) {
  AddIsland("a", 0);
  const uint64_t last = schedule_.FinalVersion(0);
  EXPECT_THAT(expectations_.Awaited(Round({}, 0, last - 1)), ElementsAre("a"));
  EXPECT_THAT(expectations_.Awaited(Round({}, 0, last)), IsEmpty());
}

TEST_F(ExpectationsTest, AnIslandWithTwoIncarnationsIsReachableOnce) {
  AddIsland("a", 0);
  AddIsland("b", 0);
  AddIsland("c", 4);
  EXPECT_EQ(expectations_.Reachable(round_), 2);
  Contribute("a", /*incarnation=*/0);
  EXPECT_THAT(expectations_.Awaited(round_), ElementsAre("a", "b"));
  EXPECT_EQ(expectations_.Reachable(round_), 2);
}

TEST_F(ExpectationsTest, AnExpectedIslandThatOffersNothingIsSilent) {
  for (const char* const name : {"contributed", "offered", "silent"}) {
    AddIsland(name, 0);
  }
  AddIsland("not_expected", 4);
  Contribute("contributed");
  round_.NoteHeard("offered");
  EXPECT_THAT(expectations_.Silent(round_), ElementsAre("silent"));
}

// The islands that are expected heartbeat but never contribute.
TEST_F(ExpectationsTest, IdleIslandsHoldARoundUpForAGraceWindow) {
  AddIsland("idle", 0);
  AddIsland("idler", 0);
  AddIsland("busy", 4);
  AddIsland("eager", 4);
  Find("busy").progress.set_run_step(4 * kRoundSteps);
  Find("eager").progress.set_run_step(4 * kRoundSteps - 1);
  EXPECT_FALSE(expectations_.Refresh(round_, now_));
  now_ += 2 * kGrace;
  EXPECT_FALSE(expectations_.Refresh(round_, now_)) << "too few could close it";
  Find("eager").progress.set_run_step(4 * kRoundSteps);
  EXPECT_FALSE(expectations_.Refresh(round_, now_));
  now_ += kGrace - absl::Seconds(1);
  EXPECT_FALSE(expectations_.Refresh(round_, now_));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(expectations_.Refresh(round_, now_));
  EXPECT_THAT(expectations_.Awaited(round_),
              ElementsAre("busy", "eager", "idle", "idler"));
}

TEST_F(ExpectationsTest, ParticipationTellsLiveFromContributingFromMerged) {
  for (const char* const name : {"a", "b", "c"}) AddIsland(name, 0);
  Contribute("a");
  Contribute("a", /*incarnation=*/2);
  Contribute("has_left");
  round_.NoteOffer("b", now_);
  const v1::Participation participation = expectations_.ParticipationIn(round_);
  EXPECT_EQ(participation.live(), 4);
  EXPECT_EQ(participation.contributing(), 3);
  EXPECT_EQ(participation.merged(), 2);
}

}  // namespace
}  // namespace causeway
