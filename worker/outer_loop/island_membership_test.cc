// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/island_membership.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

class IslandMembershipTest : public testing::Test {
 protected:
  IslandMembership& membership() { return driver_.loop().membership(); }

  template <typename Action>
  bool IsNext() const {
    return std::holds_alternative<Action>(driver_.Session());
  }
  // Returns the next action, which is expected to be of this kind.
  template <typename Action>
  Action Next() const {
    EXPECT_TRUE(IsNext<Action>());
    return IsNext<Action>() ? std::get<Action>(driver_.Session()) : Action();
  }
  absl::Duration WaitOf() const {
    return IsNext<action::Wait>() ? Next<action::Wait>().until - driver_.now()
                                  : absl::ZeroDuration();
  }
  void Break(const absl::Status& status) {
    membership().StreamBroke();
    membership().StreamEnded(status, driver_.now());
  }

  IslandDriver driver_;
};

TEST_F(IslandMembershipTest, JoinsConnectsAndSendsHeartbeats) {
  EXPECT_TRUE(IsNext<action::Join>());
  EXPECT_FALSE(membership().joined().has_value());
  driver_.Connect();
  EXPECT_EQ(membership().identity().incarnation(), 1);
  ASSERT_TRUE(IsNext<action::Heartbeat>());
  membership().HeartbeatSent({}, driver_.now());
  EXPECT_EQ(WaitOf(), IslandDriver::kHeartbeat);
  driver_.Sleep(IslandDriver::kHeartbeat);
  EXPECT_TRUE(IsNext<action::Heartbeat>());
}

TEST_F(IslandMembershipTest, ReadinessIsToldAtOnce) {
  driver_.Connect();
  const auto before = Next<action::Heartbeat>();
  membership().HeartbeatSent(before, driver_.now());
  EXPECT_TRUE(IsNext<action::Wait>());
  // Loads the parameters, and makes the trainer.
  driver_.Train(1);
  EXPECT_TRUE(membership().ready());
  // The heartbeat that was under way did not say so.
  membership().HeartbeatSent(before, driver_.now());
  const auto after = Next<action::Heartbeat>();
  EXPECT_TRUE(after.ready);
  membership().HeartbeatSent(after, driver_.now());
  EXPECT_EQ(WaitOf(), IslandDriver::kHeartbeat);
}

TEST_F(IslandMembershipTest, AJoinThatFailsForNowIsTriedAgainLaterAndLater) {
  absl::Duration longest;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(IsNext<action::Join>());
    membership().JoinAnswered(absl::UnavailableError("no route"),
                              driver_.now());
    ASSERT_GT(WaitOf(), absl::ZeroDuration());
    longest = std::max(longest, WaitOf());
    driver_.Sleep(WaitOf());
  }
  EXPECT_GT(longest, absl::Seconds(2));
  EXPECT_OK(membership().failure());
}

TEST_F(IslandMembershipTest, ARefusedJoinEndsTheSession) {
  membership().JoinAnswered(absl::InvalidArgumentError("name"), driver_.now());
  EXPECT_TRUE(IsNext<action::End>());
  EXPECT_THAT(membership().failure(), IsInvalidArgument());
}

TEST_F(IslandMembershipTest, ARunThatIsFinishedIsNoFailure) {
  membership().JoinAnswered(
      absl::FailedPreconditionError("run r is finished: every fragment"),
      driver_.now());
  EXPECT_TRUE(IsNext<action::End>());
  EXPECT_THAT(membership().failure(), IsCancelled("run r is finished"));
}

TEST_F(IslandMembershipTest, OnlyAViewMakesAConnection) {
  membership().JoinAnswered(driver_.joined(), driver_.now());
  membership().StreamOpened(driver_.now());
  EXPECT_FALSE(membership().connected());
  EXPECT_EQ(membership().connection(), 0);
  driver_.Publish({0, 0});
  EXPECT_TRUE(membership().connected());
  EXPECT_EQ(membership().connection(), 1);
  driver_.Publish({1, 0});
  EXPECT_EQ(membership().connection(), 1);
  EXPECT_EQ(membership().newest_version(0), 1);
}

TEST_F(IslandMembershipTest, AStreamThatBreaksIsOpenedAgain) {
  driver_.Connect();
  membership().StreamBroke();
  EXPECT_FALSE(membership().connected());
  EXPECT_FALSE(Next<action::CloseStream>().cancel);
  membership().StreamEnded(absl::UnavailableError("reset"), driver_.now());
  driver_.Sleep(WaitOf());
  driver_.OpenStream();
  EXPECT_EQ(membership().connection(), 2);
  EXPECT_EQ(membership().identity().incarnation(), 1);
}

TEST_F(IslandMembershipTest, AStreamThatHasWorkedIsSoonOpenedAgain) {
  driver_.Connect();
  for (int i = 0; i < 8; ++i) {
    Break(absl::UnavailableError("reset"));
    EXPECT_LE(WaitOf(), Backoff::Options().first);
    driver_.Sleep(WaitOf());
    driver_.OpenStream();
  }
}

TEST_F(IslandMembershipTest, AStreamThatIsSilentForHalfALeaseIsCancelled) {
  driver_.Connect();
  const absl::Time opened = driver_.now();
  while (driver_.now() < opened + IslandDriver::kLease / 2) {
    if (IsNext<action::Heartbeat>()) {
      membership().HeartbeatSent({}, driver_.now());
    }
    ASSERT_TRUE(IsNext<action::Wait>());
    driver_.Sleep(WaitOf());
  }
  EXPECT_EQ(driver_.now(), opened + IslandDriver::kLease / 2);
  EXPECT_TRUE(Next<action::CloseStream>().cancel);
  EXPECT_TRUE(Next<action::CloseStream>().is_silent);
}

TEST_F(IslandMembershipTest, AViewKeepsTheStream) {
  driver_.Connect();
  driver_.Sleep(IslandDriver::kLease / 2 - absl::Seconds(1));
  driver_.Publish({0, 0});
  driver_.Sleep(absl::Seconds(2));
  EXPECT_TRUE(IsNext<action::Heartbeat>());
}

TEST_F(IslandMembershipTest, AnIslandThatWasFencedOffJoinsTheSameRunAgain) {
  driver_.Connect();
  Break(absl::AbortedError("fenced off"));
  EXPECT_EQ(Next<action::Join>().request.expected_run_id(), "run");
  driver_.joined().mutable_identity()->set_incarnation(2);
  driver_.joined().mutable_heads(0)->set_version(5);
  // The coordinator was started with a shorter lease, which has ended.
  v1::MembershipConfig& config =
      *driver_.joined().mutable_config()->mutable_membership();
  config.set_lease_seconds(3);
  config.set_heartbeat_seconds(1);
  membership().JoinAnswered(driver_.joined(), driver_.now());
  EXPECT_EQ(membership().identity().incarnation(), 2);
  EXPECT_EQ(membership().newest_version(0), 5) << "before the first view";
  driver_.OpenStream();
  membership().HeartbeatSent({}, driver_.now());
  EXPECT_EQ(WaitOf(), absl::Seconds(1));
  driver_.Sleep(absl::Seconds(1.5));
  EXPECT_TRUE(Next<action::CloseStream>().is_silent) << "for half a lease";
}

class EpochsTest : public IslandMembershipTest {
 protected:
  // Delivers a view of a coordinator of this epoch.
  void Publish(uint64_t epoch) {
    v1::SessionResponse view = membership().state();
    view.set_epoch(epoch);
    view.set_message(absl::StrCat("epoch ", epoch));
    membership().ViewArrived(view, driver_.now());
  }
};

TEST_F(EpochsTest, TheHighestIsKeptAndSent) {
  driver_.joined().mutable_identity()->set_epoch(2);
  driver_.Connect();
  EXPECT_EQ(membership().identity().epoch(), 2);
  Publish(5);
  EXPECT_EQ(membership().identity().epoch(), 5);
  EXPECT_EQ(Next<action::Heartbeat>().identity.epoch(), 5);
  Break(absl::AbortedError("fenced off"));
  EXPECT_EQ(Next<action::Join>().request.epoch(), 5);
}

TEST_F(EpochsTest, AViewOfACoordinatorThatWasReplacedIsNotBelieved) {
  driver_.Connect();
  Publish(5);
  Publish(4);
  EXPECT_EQ(membership().state().message(), "epoch 5");
  EXPECT_EQ(membership().identity().epoch(), 5);
  EXPECT_TRUE(Next<action::CloseStream>().cancel);
  EXPECT_FALSE(Next<action::CloseStream>().is_silent);
  membership().StreamEnded(absl::CancelledError(), driver_.now());
  driver_.Sleep(WaitOf());
  driver_.OpenStream();
  Publish(6);
  EXPECT_TRUE(IsNext<action::Heartbeat>());
  EXPECT_EQ(membership().state().message(), "epoch 6");
}

TEST_F(EpochsTest, AJoinAtACoordinatorThatWasReplacedIsTriedAgain) {
  driver_.Connect();
  Publish(5);
  Break(absl::AbortedError("fenced off"));
  driver_.joined().mutable_identity()->set_epoch(4);
  driver_.joined().mutable_identity()->set_incarnation(7);
  membership().JoinAnswered(driver_.joined(), driver_.now());
  EXPECT_EQ(membership().identity().incarnation(), 1);
  EXPECT_THAT(membership().join_error(),
              IsUnavailable("replaced by one of epoch 5"));
  driver_.Sleep(WaitOf());
  EXPECT_TRUE(IsNext<action::Join>());
  EXPECT_OK(membership().failure());
}

TEST_F(EpochsTest, ACoordinatorThatKnowsNoEpochsIsBelieved) {
  driver_.Connect();
  Publish(5);
  Publish(0);
  EXPECT_EQ(membership().state().message(), "epoch 0");
  EXPECT_EQ(membership().identity().epoch(), 5);
  driver_.joined().mutable_identity()->clear_epoch();
  membership().JoinAnswered(driver_.joined(), driver_.now());
  EXPECT_OK(membership().join_error());
  EXPECT_EQ(membership().identity().epoch(), 5);
}

TEST_F(IslandMembershipTest, AStreamThatIsRefusedEndsTheSession) {
  driver_.Connect();
  Break(absl::PermissionDeniedError("who?"));
  EXPECT_TRUE(IsNext<action::End>());
  EXPECT_THAT(membership().failure(), IsPermissionDenied());
}

TEST_F(IslandMembershipTest, AStopCancelsTheStreamAndEndsTheSession) {
  driver_.Connect();
  membership().RequestStop();
  EXPECT_TRUE(Next<action::CloseStream>().cancel);
  membership().StreamEnded(absl::CancelledError(), driver_.now());
  EXPECT_TRUE(IsNext<action::End>());
  EXPECT_OK(membership().failure());
}

TEST_F(IslandMembershipTest, LeavesWhenItIsAskedHereOrByAnOperator) {
  driver_.Connect();
  EXPECT_FALSE(membership().must_leave());
  v1::SessionResponse view = membership().state();
  view.set_drain(true);
  membership().ViewArrived(view, driver_.now());
  EXPECT_TRUE(membership().must_leave());
  EXPECT_EQ(membership().leave_reason(), "drained");
  membership().RequestLeave("signal 15");
  EXPECT_EQ(membership().leave_reason(), "signal 15");
}

}  // namespace
}  // namespace causeway
