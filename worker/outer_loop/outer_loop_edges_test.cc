// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the outer loop where rules meet: at the end of a run, when the island
// leaves, and when it skips steps.
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/outer_loop.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

void SetStepsPerRound(IslandDriver& driver, uint64_t steps) {
  v1::SessionResponse view = driver.loop().membership().state();
  view.set_inner_steps_per_round(steps);
  driver.loop().membership().ViewArrived(view, driver.now());
}

// The island trains only the last of a round's four steps.
TEST_F(ConnectedIslandTest, FragmentsAreSentAtStepsThatAreNotTrained) {
  SetStepsPerRound(driver_, 1);
  EXPECT_THAT(driver_.Train(4), ElementsAre("begin", "train 4", "snapshot 0",
                                            "snapshot 1", "wait"));
  EXPECT_EQ(driver_.loop().step(), 6);
  driver_.Contribute(0);
  EXPECT_EQ(driver_.Contribute(1).inner_steps(), 1);
}

TEST(OuterLoopEdgesTest, AStepIsTrainedIfAFragmentWouldElseHaveNothingToSend) {
  IslandDriver driver;
  driver.joined().set_run_step(4);
  driver.joined().mutable_heads(0)->set_version(1);
  driver.Connect();
  SetStepsPerRound(driver, 1);
  EXPECT_THAT(driver.Train(6),
              ElementsAre("fetch 0 at 1", "begin", "train 6", "snapshot 1"));
}

TEST(OuterLoopEdgesTest, NothingIsSentWhileTheLastContributionIsInFlight) {
  IslandDriver driver;
  driver.joined()
      .mutable_config()
      ->mutable_synchronization()
      ->set_max_overlap_steps(9);
  driver.Connect();
  driver.Train(4);
  driver.Contribute(0);
  EXPECT_THAT(driver.Train(), ElementsAre("train 5", "train 6", "snapshot 1",
                                          "train 7", "train 8", "wait"));
  EXPECT_EQ(driver.loop().lateness().steps, 2);
  driver.ReceiveUpdate(0, true);
  EXPECT_THAT(driver.Train(8), ElementsAre("mix 0", "snapshot 0"));
}

TEST_F(ConnectedIslandTest, AStepIsCountedAsLateOnce) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.Train();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(driver_.Train(), ElementsAre("wait"));
  EXPECT_EQ(driver_.loop().lateness().updates, 1);
  EXPECT_EQ(driver_.loop().lateness().steps, 1);
}

TEST_F(ConnectedIslandTest, ApplyingAnUpdateIsNoWait) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, true);
  driver_.Trainer();
  driver_.loop().Stepped(IslandDriver::kTokens);
  ASSERT_TRUE(std::holds_alternative<action::Apply>(driver_.Trainer()));
  driver_.Sleep(absl::Seconds(2));
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::ZeroDuration());
  driver_.loop().Applied();
  driver_.Train(6);
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::ZeroDuration());
}

TEST(OuterLoopEdgesTest, AnIslandDoesNotWaitForAFinishedRun) {
  for (const bool last : {false, true}) {
    IslandDriver driver;
    driver.Connect();
    driver.Train(4);
    driver.Contribute(0);
    if (last) {
      driver.ReceiveUpdate(0, true);
      driver.Train(6);
      driver.Contribute(1);
      driver.ReceiveUpdate(1, true);
      driver.Train(8);
      driver.Contribute(0);
      driver.ReceiveUpdate(0, true);
      driver.Train(10);
      driver.Contribute(1);
      driver.ReceiveUpdate(1, true);
    }
    EXPECT_THAT(driver.Train(), Contains("wait"));
    const uint64_t version = last ? 2 : 0;
    driver.Publish({version, version}, v1::FINISHED);
    EXPECT_THAT(driver.Train(), ElementsAre("end OK"));
    // The end stays what it was.
    driver.loop().RequestStop();
    EXPECT_THAT(driver.Train(), ElementsAre("end OK"));
  }
}

TEST_F(ConnectedIslandTest, LeavingWithoutTrainingHandsInNothing) {
  driver_.Train(0);
  driver_.loop().RequestLeave("signal 15");
  driver_.Trainer();
  driver_.loop().Stepped(0);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
}

TEST_F(ConnectedIslandTest, LeavingHandsInNothingToRoundsThatAreOver) {
  driver_.Train(2);
  driver_.Publish({3, 1});
  driver_.loop().RequestLeave("signal 15");
  // A contribution builds on the newest version.
  EXPECT_THAT(driver_.Train(), ElementsAre("train 3", "wait 30s"));
  driver_.ReceiveUpdate(1, false);
  EXPECT_THAT(driver_.Train(),
              ElementsAre("rebase 1", "snapshot 1", "wait 30s"));
  EXPECT_EQ(driver_.Contribute(1).base_version(), 1);
  // Fragment 0 has had its last round.
  for (int version = 1; version <= 3; ++version) {
    driver_.ReceiveUpdate(0, false);
    EXPECT_THAT(
        driver_.Train(),
        ElementsAre("rebase 0",
                    version < 3 ? "wait 30s" : "end CANCELLED: signal 15"));
  }
}

TEST_F(ConnectedIslandTest, LeavingHandsInTheTrainingSinceTheLastSend) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.loop().RequestLeave("signal 15");
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 5", "snapshot 1", "wait 30s"));
  driver_.Contribute(1);
  // Fragment 0's contribution is accepted, but it lacks step 5.
  EXPECT_THAT(driver_.Train(), ElementsAre("wait 30s"));
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(), ElementsAre("mix 0", "snapshot 0", "wait 30s"));
  EXPECT_EQ(driver_.Contribute(0).tokens(), 10);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
}

// The control stream of a leaving island ends after the coordinator has
// accepted all of its training.
class CutOffLeaverTest : public ConnectedIslandTest {
 protected:
  CutOffLeaverTest() {
    driver_.Train(4);
    driver_.Contribute(0);
    driver_.loop().RequestLeave("signal 15");
    driver_.Train();
    driver_.ReceiveUpdate(0, true);
    EXPECT_THAT(driver_.Train(),
                ElementsAre("mix 0", "snapshot 0", "wait 30s"));
    driver_.Contribute(0);
    driver_.Contribute(1);
    driver_.loop().membership().StreamBroke();
    driver_.loop().membership().StreamEnded(absl::UnavailableError("reset"),
                                            driver_.now());
  }
};

// A coordinator that was restarted has forgotten what it had accepted.
TEST_F(CutOffLeaverTest, WaitsUntilARestartedCoordinatorHasItsOffers) {
  for (const uint32_t id : {0, 1}) {
    driver_.loop().exchange(id).UpdateAnswered(
        {.status = absl::UnavailableError("reset")}, driver_.now());
  }
  EXPECT_THAT(driver_.Train(), ElementsAre("wait 30s"));
  driver_.Sleep(absl::Seconds(10));
  driver_.OpenStream();
  driver_.Publish({1, 0});
  EXPECT_EQ(driver_.Contribute(1).base_version(), 0);
  EXPECT_THAT(driver_.Train(), ElementsAre("wait 20s"));
  EXPECT_EQ(driver_.Contribute(0).base_version(), 1);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
}

// The calls that wait for its updates have not broken.
TEST_F(CutOffLeaverTest, NeedNotOfferAgainToTheSameCoordinator) {
  EXPECT_THAT(driver_.Train(), ElementsAre("wait 30s"));
  driver_.Sleep(absl::Seconds(10));
  driver_.OpenStream();
  driver_.Publish({1, 0});
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
}

TEST(OuterLoopEdgesTest, IslandsSpreadTheirRetries) {
  std::vector<absl::Duration> pauses[2];
  for (const uint64_t seed : {0, 1}) {
    OuterLoop::Options options = IslandDriver::Options();
    options.seed = seed + 1;
    IslandDriver driver(options);
    driver.joined().mutable_heads(0)->set_version(1);
    driver.loop().membership().JoinAnswered(absl::UnavailableError("reset"),
                                            driver.now());
    const auto note = [&](const auto& action) {
      ASSERT_TRUE(std::holds_alternative<action::Wait>(action));
      const absl::Time until = std::get<action::Wait>(action).until;
      pauses[seed].push_back(until - driver.now());
      driver.Sleep(until - driver.now());
    };
    note(driver.Session());
    driver.Connect();
    driver.Trainer();
    driver.loop().ParametersAnswered(absl::UnavailableError("reset"),
                                     driver.now());
    note(driver.Trainer());
    driver.Train(0);
    driver.loop().exchange(0).UpdateAnswered(
        {.status = absl::UnavailableError("reset")}, driver.now());
    note(driver.OfFragment(0));
    driver.loop().membership().StreamBroke();
    driver.loop().membership().StreamEnded(absl::UnavailableError("reset"),
                                           driver.now());
    note(driver.Session());
  }
  ASSERT_EQ(pauses[0].size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_NE(pauses[0][i], pauses[1][i]) << i;
}

class ResumeEdgesTest : public testing::Test {
 protected:
  // A checkpoint of step 9. Fragment 0 was sent after step 8, fragment 1 after
  // step 6, and neither was accepted.
  ResumeEdgesTest() {
    options_.checkpoint_steps = 3;
    IslandDriver first(options_);
    first.joined()
        .mutable_config()
        ->mutable_synchronization()
        ->set_max_overlap_steps(9);
    first.Connect();
    first.Train(4);
    first.Contribute(0);
    first.ReceiveUpdate(0, true);
    first.Train(9);
    options_.resume = first.saved();
  }

  OuterLoop::Options options_ = IslandDriver::Options();
};

TEST_F(ResumeEdgesTest, GoesBackToTheFirstSendThatIsLost) {
  IslandDriver driver(options_);
  driver.joined().mutable_heads(0)->set_version(1);
  driver.Connect();
  EXPECT_THAT(driver.Train(6), ElementsAre("begin from checkpoint", "save 5",
                                           "train 6", "snapshot 1"));
  EXPECT_EQ(driver.Contribute(1).tokens(), 100);
}

// The snapshot of the contribution died with the previous process, so the
// parameters become the anchor.
TEST_F(ResumeEdgesTest, ClaimsNoTrainingThatIsLostWithTheSnapshot) {
  IslandDriver driver(options_);
  driver.joined().mutable_heads(0)->set_version(1);
  driver.joined().mutable_heads(1)->set_version(1);
  driver.Connect();
  driver.Train(0);
  EXPECT_EQ(driver.loop().window(1).training().tokens, 90);
  driver.ReceiveUpdate(1, false, {.tokens = 60, .inner_steps = 6});
  EXPECT_THAT(driver.Train(6), ElementsAre("train 6", "mix 1"));
  EXPECT_TRUE(driver.loop().window(1).empty());
}

// Islands that sent in different orders would wait for each other forever.
TEST_F(ResumeEdgesTest, SendsInTheOrderOfTheSchedule) {
  options_.resume->set_run_step(8);
  IslandDriver driver(options_);
  driver.joined().mutable_heads(0)->set_version(1);
  driver.Connect();
  EXPECT_THAT(driver.Train(6), ElementsAre("begin from checkpoint", "save 5",
                                           "train 6", "snapshot 1"));
  driver.Contribute(1);
  driver.ReceiveUpdate(1, true);
  EXPECT_THAT(driver.Train(8), ElementsAre("train 7", "mix 1", "train 8",
                                           "snapshot 0", "save 8"));
}

TEST_F(ResumeEdgesTest, ACheckpointOfAnotherPlanIsRefused) {
  options_.resume->mutable_fragments()->RemoveLast();
  IslandDriver driver(options_);
  driver.Connect();
  EXPECT_THAT(driver.Train(),
              ElementsAre(StartsWith("end FAILED_PRECONDITION")));
}

// The update to version 2 may contain what the earlier process handed in.
TEST_F(ResumeEdgesTest, AsksWhatIsMergedIntoUpdatesThatAreSkipped) {
  IslandDriver driver(options_);
  driver.joined().mutable_heads(0)->set_version(3);
  driver.Connect();
  driver.Train();
  UpdateAnswer gone{.status = absl::NotFoundError("dropped")};
  gone.head.set_version(2);
  driver.loop().exchange(0).UpdateAnswered(gone, driver.now());
  v1::FragmentHead head;
  head.set_version(3);
  driver.loop().exchange(0).ParametersAnswered(head, driver.now());
  EXPECT_TRUE(
      std::holds_alternative<action::AskWhatIsMerged>(driver.OfFragment(0)));
}

}  // namespace
}  // namespace causeway
