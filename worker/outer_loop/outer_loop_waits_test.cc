// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the reasons that an outer loop gives for training that stands still.
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "worker/outer_loop/outer_loop.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

class OuterLoopWaitsTest : public testing::Test {
 protected:
  // Carries out the trainer's actions until it waits. Expects the action, and
  // the loop after two seconds, to say why.
  void ExpectWait(v1::Wait::Reason reason, const std::string& activity) {
    driver_.Train();
    const TrainerAction next = driver_.Trainer();
    ASSERT_TRUE(std::holds_alternative<action::Wait>(next));
    EXPECT_EQ(std::get<action::Wait>(next).why.reason(), reason);
    driver_.Sleep(absl::Seconds(2));
    EXPECT_EQ(wait().reason(), reason);
    EXPECT_EQ(wait().seconds(), 2);
    EXPECT_EQ(driver_.loop().Activity(), activity);
  }
  void ExpectNoWait(const std::string& activity) {
    EXPECT_EQ(wait().DebugString(), "");
    EXPECT_EQ(driver_.loop().Activity(), activity);
  }
  v1::Wait wait() { return driver_.loop().wait(driver_.now()); }

  // Publishes that this many islands are missing.
  void Miss(uint32_t islands) {
    v1::SessionResponse view = driver_.loop().membership().state();
    view.set_islands_missing(islands);
    driver_.loop().membership().ViewArrived(view, driver_.now());
  }
  // Sends a contribution of the fragment and receives the update.
  void Update(uint32_t sent) {
    driver_.Contribute(sent);
    driver_.ReceiveUpdate(sent, true);
  }

  IslandDriver driver_;
};

TEST_F(OuterLoopWaitsTest, ToJoin) {
  ExpectNoWait("joining");
  ExpectWait(v1::Wait::JOINING, "joining");
}

TEST_F(OuterLoopWaitsTest, ToFetchAgain) {
  driver_.joined().mutable_heads(0)->set_version(1);
  driver_.Connect();
  driver_.Trainer();
  ExpectNoWait("loading parameters");
  driver_.loop().ParametersAnswered(absl::UnavailableError("reset"),
                                    driver_.now());
  EXPECT_EQ(std::get<action::Wait>(driver_.Trainer()).why.reason(),
            v1::Wait::LOADING);
  EXPECT_EQ(driver_.loop().Activity(), "loading parameters");
}

TEST_F(OuterLoopWaitsTest, NotWhileTheHostFetches) {
  driver_.Connect();
  ASSERT_TRUE(
      std::holds_alternative<action::FetchParameters>(driver_.Trainer()));
  driver_.loop().FetchStarted();
  // The trainer has nothing to do, but training does not wait for others.
  ASSERT_TRUE(std::holds_alternative<action::Wait>(driver_.Trainer()));
  ExpectNoWait("loading parameters");
  driver_.loop().ParametersAnswered(v1::FragmentHead(), driver_.now());
  const TrainerAction next = driver_.Trainer();
  ASSERT_TRUE(std::holds_alternative<action::FetchParameters>(next));
  EXPECT_EQ(std::get<action::FetchParameters>(next).request.fragment(), 1);
}

TEST_F(OuterLoopWaitsTest, ForIslands) {
  driver_.joined().set_run_state(v1::WAITING_FOR_ISLANDS);
  driver_.Connect();
  // Older coordinators do not say how many islands are missing.
  ExpectWait(v1::Wait::ISLANDS, "waiting for islands");
  Miss(1);
  driver_.Trainer();
  EXPECT_EQ(driver_.loop().Activity(), "waiting for islands; 1 island missing");
  EXPECT_EQ(wait().seconds(), 2) << "the reason is still the same";
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::ZeroDuration());
}

TEST_F(OuterLoopWaitsTest, ForAnOperatorBeforeTheRunBegins) {
  driver_.joined().set_run_state(v1::PAUSED);
  driver_.Connect();
  ExpectWait(v1::Wait::PAUSED, "paused");
  driver_.Publish({0, 0}, v1::WAITING_FOR_ISLANDS);
  ExpectWait(v1::Wait::ISLANDS, "waiting for islands");
}

TEST_F(OuterLoopWaitsTest, ForAnOperator) {
  driver_.Connect();
  driver_.Train(2);
  ExpectNoWait("training");
  driver_.Publish({0, 0}, v1::PAUSED);
  Miss(1);
  ExpectWait(v1::Wait::PAUSED, "paused");
  driver_.Publish({0, 0});
  driver_.Trainer();
  ExpectNoWait("training");
}

TEST_F(OuterLoopWaitsTest, ForAnUpdateThatIsDue) {
  driver_.Connect();
  driver_.Train(4);
  driver_.Contribute(0);
  ExpectWait(v1::Wait::UPDATE_DUE,
             "waiting for fragment 0's update, due at step 5");
  EXPECT_EQ(wait().fragment(), 0);
  EXPECT_EQ(wait().from_version(), 0);
  EXPECT_EQ(wait().to_version(), 1);
  Miss(2);
  driver_.Trainer();
  EXPECT_EQ(driver_.loop().Activity(),
            "waiting for fragment 0's update, due at step 5; 2 islands "
            "missing");
}

TEST_F(OuterLoopWaitsTest, ToCatchUp) {
  driver_.Connect();
  driver_.Train(4);
  Update(0);
  driver_.Train(7);
  driver_.Publish({3, 0});
  ExpectWait(v1::Wait::CATCHING_UP,
             "catching up from version 1 to 3 of fragment 0");
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::Seconds(2));
  EXPECT_EQ(wait().due_step(), 0);
}

TEST_F(OuterLoopWaitsTest, ToSettle) {
  driver_.Connect();
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.loop().SettleFirst();
  ExpectWait(v1::Wait::SETTLING, "settling: waiting for fragment 0's update");
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::Seconds(2));
}

TEST_F(OuterLoopWaitsTest, ForTheLastRounds) {
  driver_.Connect();
  for (const uint64_t step : {4, 6, 8, 10}) {
    driver_.Train(step);
    Update(step % 4 == 0 ? 0 : 1);
  }
  ExpectWait(v1::Wait::LAST_ROUNDS, "waiting for the last round of fragment 0");
  Update(0);
  ExpectWait(v1::Wait::LAST_ROUNDS, "waiting for the last round of fragment 1");
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::Seconds(4));
}

TEST_F(OuterLoopWaitsTest, ToHandIn) {
  driver_.Connect();
  driver_.Train(2);
  driver_.loop().RequestLeave("signal 15");
  ExpectWait(v1::Wait::LEAVING, "leaving: handing in fragment 0");
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::ZeroDuration());
}

TEST_F(OuterLoopWaitsTest, NotWhileItValidates) {
  driver_.Connect();
  driver_.AskToValidate(1);
  driver_.Train(4);
  Update(0);
  driver_.Train(6);
  Update(1);
  driver_.Train(6);
  driver_.loop().Stepped(IslandDriver::kTokens);
  EXPECT_TRUE(std::holds_alternative<action::Apply>(driver_.Trainer()));
  ExpectNoWait("synchronizing");
  driver_.loop().Applied();
  EXPECT_TRUE(std::holds_alternative<action::Validate>(driver_.Trainer()));
  ExpectNoWait("validating");
}

}  // namespace
}  // namespace causeway
