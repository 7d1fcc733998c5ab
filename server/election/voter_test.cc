// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/election/office.h"

namespace causeway {
namespace {

using Step = Voter::Step;

class VoterTest : public testing::Test {
 protected:
  // "b" is in sync with "a", which leads or has led.
  VoterTest() {
    view_.office.set_run_id("r");
    view_.office.set_epoch(3);
    view_.office.mutable_leader()->set_name("a");
    view_.office = WithInSync(view_.office, {"a", "b"});
    view_.written = WriteKey(view_.office);
  }

  void SetLeads(bool leads) {
    view_.leader.reset();
    if (leads) view_.leader = view_.office.leader();
  }
  void Expect(Step step) {
    EXPECT_THAT(voter_.Next(view_, kCopy), IsOkAndHolds(step));
  }
  void ExpectWaitWhileEtcdIsAway() {
    EXPECT_THAT(voter_.Next(absl::UnavailableError("away"), kCopy),
                IsOkAndHolds(Step::kWait));
  }

  static inline const Holding kCopy = {
      .run_id = "r", .is_complete = true, .epoch = 3};
  OfficeView view_;
  Voter voter_{"b"};
};

TEST_F(VoterTest, AFollowerPausesBeforeItStands) {
  SetLeads(true);
  Expect(Step::kFollow);
  Expect(Step::kWait);
  SetLeads(false);
  Expect(Step::kPause);
  Expect(Step::kCampaign);
}

TEST_F(VoterTest, AStartThatFindsNoEtcdDoesNotDelayTheElection) {
  ExpectWaitWhileEtcdIsAway();
  SetLeads(false);
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
  // The next time it is gone it is replaced at once.
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
