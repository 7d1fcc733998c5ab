// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/office.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using Step = Voter::Step;
using testing::ElementsAre;

v1::Replica ReplicaOf(const std::string& name) {
  v1::Replica replica;
  replica.set_name(name);
  replica.set_address(name + ":7070");
  return replica;
}

// Returns the view after "a" has led run "r", with "b" in sync.
OfficeView ViewOf(const std::string& leader) {
  OfficeView view;
  view.office.set_run_id("r");
  view.office.set_epoch(3);
  *view.office.mutable_leader() = ReplicaOf("a");
  view.office = WithInSync(view.office, {"a", "b"});
  view.written = WriteKey(view.office);
  if (!leader.empty()) view.leader = ReplicaOf(leader);
  return view;
}

const Holding kCopy = {.run_id = "r", .is_complete = true, .epoch = 3};
const Holding kNothing;

TEST(OfficeTest, ALeaderIsFollowed) {
  EXPECT_THAT(Voter("b").Next(ViewOf("a"), kCopy), IsOkAndHolds(Step::kFollow));
  EXPECT_THAT(Voter("c").Next(ViewOf("a"), kNothing),
              IsOkAndHolds(Step::kFollow));
  // "a" was started again, and its previous lease has not ended.
  EXPECT_THAT(Voter("a").Next(ViewOf("a"), kCopy), IsOkAndHolds(Step::kWait));
}

TEST(OfficeTest, OnlyThoseInSyncCampaign) {
  EXPECT_THAT(Voter("b").Next(ViewOf(""), kCopy),
              IsOkAndHolds(Step::kCampaign));
  EXPECT_THAT(Voter("a").Next(ViewOf(""), kCopy),
              IsOkAndHolds(Step::kCampaign));
  EXPECT_THAT(Voter("c").Next(ViewOf(""), kCopy), IsOkAndHolds(Step::kWait));
  // Its disk was lost, or is being filled.
  EXPECT_THAT(Voter("b").Next(ViewOf(""), kNothing), IsOkAndHolds(Step::kWait));
  Holding incomplete = kCopy;
  incomplete.is_complete = false;
  EXPECT_THAT(Voter("b").Next(ViewOf(""), incomplete),
              IsOkAndHolds(Step::kWait));
}

TEST(OfficeTest, AnOperatorHearsWhomACoordinatorWaitsFor) {
  EXPECT_EQ(AwaitedBy("c", ViewOf(""), kCopy),
            "only a or b may lead the run (they have every version): start one "
            "of them");
  EXPECT_EQ(AwaitedBy("b", ViewOf(""), kNothing),
            "only a may lead the run (it has every version): start it");
  EXPECT_EQ(AwaitedBy("b", ViewOf(""), kCopy), "it asks to lead the run");
  EXPECT_EQ(AwaitedBy("b", ViewOf("a"), kCopy),
            "a at a:7070 leads the run, and does not answer");
}

TEST(OfficeTest, TheFirstCandidateBeginsANewRun) {
  const OfficeView empty;
  EXPECT_THAT(Voter("a").Next(empty, kNothing), IsOkAndHolds(Step::kCampaign));
  // The run had no followers before.
  EXPECT_THAT(Voter("a").Next(empty, kCopy), IsOkAndHolds(Step::kCampaign));
  // Its first coordinator died before the run had an id.
  OfficeView unnamed;
  unnamed.office = Successor({}, ReplicaOf("a"), kNothing);
  unnamed.written = WriteKey(unnamed.office);
  EXPECT_THAT(Voter("a").Next(unnamed, kNothing),
              IsOkAndHolds(Step::kCampaign));
  EXPECT_THAT(Voter("b").Next(unnamed, kNothing), IsOkAndHolds(Step::kWait));
}

TEST(OfficeTest, RunsAreNotMixedUp) {
  Holding other = kCopy;
  other.run_id = "other";
  for (const char* const leader : {"", "a"}) {
    EXPECT_THAT(Voter("b").Next(ViewOf(leader), other),
                IsFailedPrecondition("run other", "run r",
                                     "if etcd has lost its data"));
  }
}

TEST(OfficeTest, TheSuccessorHasAHigherEpochWithoutTheOldLeader) {
  const v1::Office after = Successor(ViewOf("").office, ReplicaOf("b"), kCopy);
  EXPECT_EQ(after.epoch(), 4);
  EXPECT_EQ(after.leader().name(), "b");
  EXPECT_THAT(after.in_sync(), ElementsAre("b"));
  // The previous leader may be elected again.
  EXPECT_THAT(Successor(ViewOf("").office, ReplicaOf("a"), kCopy).in_sync(),
              ElementsAre("a", "b"));
  // The run was promoted by hand before.
  Holding promoted = kCopy;
  promoted.epoch = 7;
  EXPECT_EQ(Successor(ViewOf("").office, ReplicaOf("b"), promoted).epoch(), 8);
}

TEST(OfficeTest, VersionsWaitForAllThatMayBeInSync) {
  SyncSet set({"a", "b"});
  EXPECT_FALSE(set.Propose({"a", "b"}));
  ASSERT_TRUE(set.Propose({"a", "c"}));
  EXPECT_THAT(set.names(), ElementsAre("a", "b", "c"));
  // The outcome is unknown, and meanwhile "c" is behind.
  ASSERT_TRUE(set.Propose({"a", "b"})) << "the change may still be made";
  EXPECT_THAT(set.names(), ElementsAre("a", "b", "c"));
  set.Settle({"a", "b"});
  EXPECT_THAT(set.names(), ElementsAre("a", "b"));
  EXPECT_FALSE(set.Propose({"a", "b"}));
}

TEST(OfficeTest, KeysAreReadAsTheyAreWritten) {
  const v1::Office office = ViewOf("").office;
  v1::Office read;
  ASSERT_OK(ReadKey(WriteKey(office), read));
  EXPECT_EQ(read.SerializeAsString(), office.SerializeAsString());
  EXPECT_THAT(ReadKey("{broken", read), IsDataLoss("not a valid Office"));
}

class VoterTest : public testing::Test {
 protected:
  // Sets whether "a" still leads.
  void SetLeads(bool leads) { view_ = ViewOf(leads ? "a" : ""); }
  void Expect(Step step) {
    EXPECT_THAT(voter_.Next(view_, kCopy), IsOkAndHolds(step));
  }
  void ExpectWaitWhileEtcdIsAway() {
    EXPECT_THAT(voter_.Next(absl::UnavailableError("away"), kCopy),
                IsOkAndHolds(Step::kWait));
  }

  OfficeView view_ = ViewOf("");
  Voter voter_{"b"};
};

TEST_F(VoterTest, AFollowerPausesBeforeItCampaigns) {
  SetLeads(true);
  Expect(Step::kFollow);
  Expect(Step::kWait);
  SetLeads(false);
  Expect(Step::kPause);
  Expect(Step::kCampaign);
}

// The office of "a" was written again, and the lease of "c" has not ended.
TEST_F(VoterTest, TheLeaderOfARestoredEtcdIsLeft) {
  const auto set_leaders = [this](uint64_t epoch, const std::string& office,
                                  const std::string& lease) {
    view_ = ViewOf(lease);
    view_.office.set_epoch(epoch);
    *view_.office.mutable_leader() = ReplicaOf(office);
  };
  set_leaders(3, "c", "c");
  Expect(Step::kFollow);
  set_leaders(4, "a", "c");
  Expect(Step::kWait);
  set_leaders(4, "a", "a");
  Expect(Step::kFollow);
}

TEST(OfficeTest, TheNameOfALivingLeaderIsRefused) {
  Voter voter("a", /*own_waits=*/2);
  const auto next = [&](const std::string& leader) {
    return voter.Next(ViewOf(leader), kCopy);
  };
  EXPECT_THAT(next("a"), IsOkAndHolds(Step::kWait));
  EXPECT_THAT(next("a"), IsOkAndHolds(Step::kWait));
  // The lease was the previous process's.
  EXPECT_THAT(next(""), IsOkAndHolds(Step::kCampaign));
  EXPECT_THAT(next("a"), IsOkAndHolds(Step::kWait));
  EXPECT_THAT(next("a"), IsOkAndHolds(Step::kWait));
  EXPECT_THAT(next("a"),
              IsFailedPrecondition("name a is in use", "a:7070", "set --name"));
}

TEST_F(VoterTest, AStartThatFindsNoEtcdDoesNotDelayTheElection) {
  ExpectWaitWhileEtcdIsAway();
  SetLeads(false);
  Expect(Step::kCampaign);
}

TEST_F(VoterTest, ANewProcessWithoutEtcdFollowsTheLeaderOfItsCopy) {
  Holding copy = kCopy;
  copy.leader = "a:7070";
  const auto next_without_etcd = [&](const Holding& holding) {
    return voter_.Next(absl::UnavailableError("away"), holding);
  };
  // It has no copy.
  for (int i = 0; i <= Voter::kPatience; ++i) {
    EXPECT_THAT(next_without_etcd(kCopy), IsOkAndHolds(Step::kWait));
  }
  for (int i = 1; i < Voter::kPatience; ++i) {
    EXPECT_THAT(next_without_etcd(copy), IsOkAndHolds(Step::kWait));
  }
  EXPECT_THAT(next_without_etcd(copy), IsOkAndHolds(Step::kFollowLast));
  EXPECT_THAT(next_without_etcd(copy), IsOkAndHolds(Step::kWait));
  // It obeys etcd once it answers.
  SetLeads(true);
  Expect(Step::kFollow);
  // Later it follows only whom etcd names.
  SetLeads(false);
  Expect(Step::kPause);
  for (int i = 0; i <= Voter::kPatience; ++i) {
    EXPECT_THAT(next_without_etcd(copy), IsOkAndHolds(Step::kWait));
  }
}

TEST_F(VoterTest, TheLeaderOfACopyIsLeftBeforeACampaign) {
  Holding copy = kCopy;
  copy.leader = "a:7070";
  for (int i = 1; i < Voter::kPatience; ++i) {
    EXPECT_THAT(voter_.Next(absl::UnavailableError("away"), copy),
                IsOkAndHolds(Step::kWait));
  }
  EXPECT_THAT(voter_.Next(absl::UnavailableError("away"), copy),
              IsOkAndHolds(Step::kFollowLast));
  // The leader has time for another lease.
  SetLeads(false);
  EXPECT_THAT(voter_.Next(absl::UnavailableError("away"), copy),
              IsOkAndHolds(Step::kWait));
  for (int i = 0; i < Voter::kPatience; ++i) Expect(Step::kWait);
  Expect(Step::kPause);
  Expect(Step::kCampaign);
}

TEST_F(VoterTest, ALeaderHasTimeForAnotherLeaseAfterEtcdWasAway) {
  SetLeads(true);
  Expect(Step::kFollow);
  ExpectWaitWhileEtcdIsAway();
  SetLeads(false);
  Expect(Step::kWait);
  SetLeads(true);
  Expect(Step::kWait);
  // The next time, the leader is replaced at once.
  SetLeads(false);
  Expect(Step::kPause);
}

TEST_F(VoterTest, ALeaderThatDiedWhileEtcdWasAwayIsReplaced) {
  SetLeads(true);
  Expect(Step::kFollow);
  ExpectWaitWhileEtcdIsAway();
  SetLeads(false);
  for (int i = 0; i < Voter::kPatience; ++i) Expect(Step::kWait);
  Expect(Step::kPause);
  Expect(Step::kCampaign);
}

}  // namespace
}  // namespace causeway
