// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/outer_loop.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;
using Actions = std::vector<std::string>;

TEST(OuterLoopTest, BeginsWithTheRunsParameters) {
  IslandDriver driver;
  EXPECT_THAT(driver.Train(), ElementsAre("wait"));
  driver.joined().mutable_heads(1)->set_version(2);
  driver.joined().set_run_step(9);
  driver.Connect();
  EXPECT_THAT(driver.Train(9), ElementsAre("fetch 1 at 2", "begin"));
  EXPECT_EQ(driver.loop().step(), 9);
}

TEST(OuterLoopTest, ParametersThatAreDroppedAreFetchedAtTheirNewestVersion) {
  IslandDriver driver;
  driver.joined().mutable_heads(0)->set_version(1);
  driver.Connect();
  ASSERT_TRUE(
      std::holds_alternative<action::FetchParameters>(driver.Trainer()));
  driver.loop().ParametersAnswered(absl::NotFoundError("no more"),
                                   driver.now());
  // Nothing newer is known yet.
  EXPECT_THAT(driver.Train(), ElementsAre(StartsWith("wait ")));
  driver.Publish({3, 0});
  driver.Sleep(absl::Seconds(1));
  const TrainerAction fetch = driver.Trainer();
  ASSERT_TRUE(std::holds_alternative<action::FetchParameters>(fetch));
  EXPECT_EQ(std::get<action::FetchParameters>(fetch).request.version(), 3);
  driver.Publish({4, 0});
  driver.loop().ParametersAnswered(absl::NotFoundError("no more"),
                                   driver.now());
  EXPECT_THAT(driver.Train(0), ElementsAre("fetch 0 at 4", "begin"));
}

TEST_F(ConnectedIslandTest, BeginsAtThePositionThatTheRunHasByThen) {
  ASSERT_TRUE(
      std::holds_alternative<action::FetchParameters>(driver_.Trainer()));
  // While the island loads, the run advances. Fragment 0 is loaded already.
  v1::SessionResponse view = driver_.loop().membership().state();
  view.set_run_step(9);
  view.mutable_heads(0)->set_version(2);
  view.mutable_heads(1)->set_version(1);
  driver_.loop().membership().ViewArrived(view, driver_.now());
  EXPECT_FALSE(driver_.loop().membership().ready());
  // Version 1 of fragment 0 is sent after step 4: no island gets further yet.
  EXPECT_THAT(driver_.Train(3), ElementsAre("fetch 1 at 1", "begin"));
  EXPECT_TRUE(driver_.loop().membership().ready());
  EXPECT_EQ(driver_.loop().step(), 3);
}

TEST(OuterLoopTest, WaitsForTheOtherIslands) {
  IslandDriver driver;
  driver.joined().set_run_state(v1::WAITING_FOR_ISLANDS);
  driver.Connect();
  EXPECT_THAT(driver.Train(), ElementsAre("begin", "wait"));
  driver.Publish({0, 0});
  EXPECT_THAT(driver.Train(1), ElementsAre("train 1"));
}

TEST_F(ConnectedIslandTest, AsksForTheSameActionUntilItIsAnswered) {
  driver_.Train(2);
  for (int i = 0; i < 2; ++i) {
    const TrainerAction action = driver_.Trainer();
    ASSERT_TRUE(std::holds_alternative<action::Train>(action));
    EXPECT_EQ(std::get<action::Train>(action).step, 3);
  }
}

// Trains a whole run of this island alone.
TEST_F(ConnectedIslandTest, SendsOnScheduleAndMixesOneStepLater) {
  EXPECT_THAT(driver_.Train(4),
              ElementsAre("begin", "train 1", "train 2", "train 3", "train 4",
                          "snapshot 0"));
  EXPECT_EQ(driver_.Contribute(0).tokens(), 40);
  driver_.ReceiveUpdate(0, /*includes_island=*/true);
  EXPECT_THAT(driver_.Train(6),
              ElementsAre("train 5", "mix 0", "train 6", "snapshot 1"));
  EXPECT_EQ(driver_.Contribute(1).tokens(), 60);
  driver_.ReceiveUpdate(1, true);
  EXPECT_THAT(driver_.Train(8),
              ElementsAre("train 7", "mix 1", "train 8", "snapshot 0"));
  EXPECT_EQ(driver_.Contribute(0).tokens(), 40);
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(10),
              ElementsAre("train 9", "mix 0", "train 10", "snapshot 1"));
  driver_.Contribute(1);
  driver_.ReceiveUpdate(1, true);
  EXPECT_THAT(driver_.Train(), ElementsAre("train 11", "mix 1", "train 12",
                                           "snapshot 0", "snapshot 1", "wait"));
  EXPECT_EQ(driver_.Contribute(0).tokens(), 40);
  EXPECT_EQ(driver_.Contribute(1).tokens(), 20);
  driver_.ReceiveUpdate(0, true);
  driver_.ReceiveUpdate(1, true);
  EXPECT_THAT(driver_.Train(), ElementsAre("mix 0", "mix 1", "end OK"));
}

// All islands must send in one order, or no round closes before the last
// fragment is there.
TEST_F(ConnectedIslandTest, FragmentsGoUpInTheOrderInWhichTheyAreSent) {
  const auto contributes = [&](uint32_t id) {
    return std::holds_alternative<action::Contribute>(driver_.OfFragment(id));
  };
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(), Contains("snapshot 1"));
  EXPECT_THAT(driver_.Train(), ElementsAre("wait"));
  // Fragment 1 is sent after step 6, fragment 0 after step 8.
  EXPECT_TRUE(contributes(1));
  EXPECT_FALSE(contributes(0));
  driver_.Contribute(1);
  EXPECT_TRUE(contributes(0));
}

TEST_F(ConnectedIslandTest, WaitsForAnUpdateThatIsTooLate) {
  driver_.Train(4);
  driver_.Contribute(0);
  // The update is due after step 5, and must be applied after step 6 at the
  // latest.
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 5", "train 6", "snapshot 1", "wait"));
  EXPECT_EQ(driver_.loop().lateness().updates, 1);
  EXPECT_EQ(driver_.loop().lateness().steps, 1);
  driver_.Sleep(absl::Seconds(3));
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::Seconds(3));
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(7), ElementsAre("mix 0", "train 7"));
  driver_.Sleep(absl::Seconds(5));
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::Seconds(3));
}

TEST_F(ConnectedIslandTest, SettlesEverythingThatIsInFlightBeforeAStep) {
  driver_.loop().SettleFirst();
  driver_.Train(4);
  driver_.Contribute(0);
  // No step is trained before the update comes, which is then applied one step
  // before it is due.
  driver_.loop().SettleFirst();
  EXPECT_THAT(driver_.Train(), ElementsAre("wait"));
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(6),
              ElementsAre("mix 0", "train 5", "train 6", "snapshot 1"));
  // The next one overlaps again.
  driver_.Contribute(1);
  driver_.ReceiveUpdate(1, true);
  EXPECT_THAT(driver_.Train(8),
              ElementsAre("train 7", "mix 1", "train 8", "snapshot 0"));
}

TEST_F(ConnectedIslandTest, NothingInFlightIsSettledAtOnce) {
  driver_.Train(2);
  driver_.loop().SettleFirst();
  EXPECT_THAT(driver_.Train(3), ElementsAre("train 3"));
}

TEST_F(ConnectedIslandTest, EveryLateUpdateOfAFragmentIsCounted) {
  for (const uint64_t sent_at : {4, 8}) {
    driver_.Train(sent_at);
    driver_.Contribute(0);
    // The update is due after this step.
    driver_.Train(sent_at + 1);
    EXPECT_EQ(driver_.loop().lateness().updates, sent_at / 4);
    driver_.ReceiveUpdate(0, true);
    driver_.Train(sent_at + 2);
    driver_.Contribute(1);
    driver_.ReceiveUpdate(1, true);
  }
  EXPECT_EQ(driver_.loop().lateness().updates, 2);
  EXPECT_EQ(driver_.loop().lateness().steps, 0);
}

TEST_F(ConnectedIslandTest,
       AnUpdateWithoutTheIslandIsARebaseAndItsTrainingStays) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, /*includes_island=*/false);
  EXPECT_THAT(driver_.Train(8),
              ElementsAre("train 5", "rebase 0", "train 6", "snapshot 1",
                          "train 7", "train 8", "snapshot 0", "wait"));
  driver_.Contribute(1);
  EXPECT_EQ(driver_.Contribute(0).tokens(), 80);
}

TEST_F(ConnectedIslandTest, CatchesUpWithOthersBeforeItSends) {
  driver_.Train(3);
  driver_.Publish({1, 0});
  driver_.ReceiveUpdate(0, false);
  // Round 1 is closed: step 4 sends nothing, and the fragment's training goes
  // into round 2.
  EXPECT_THAT(driver_.Train(6), ElementsAre("train 4", "rebase 0", "train 5",
                                            "train 6", "snapshot 1"));
  EXPECT_EQ(driver_.loop().window(0).training().tokens, 60);
}

// Otherwise it would be late for the next round, too.
TEST_F(ConnectedIslandTest, ContinuesFromTheRunsStepWhenARoundClosedWithoutIt) {
  driver_.Train(3);
  v1::SessionResponse view = driver_.loop().membership().state();
  view.set_run_step(5);
  view.mutable_heads(0)->set_version(1);
  driver_.loop().membership().ViewArrived(view, driver_.now());
  driver_.ReceiveUpdate(0, false);
  EXPECT_THAT(driver_.Train(6),
              ElementsAre("train 4", "rebase 0", "train 6", "snapshot 1"));
  EXPECT_EQ(driver_.loop().window(0).training().inner_steps, 5);
}

TEST_F(ConnectedIslandTest, MovesOnWithTheRunWhenItHasMissedRounds) {
  driver_.Train(2);
  driver_.Publish({2, 2});
  driver_.ReceiveUpdate(0, false);
  driver_.ReceiveUpdate(1, false);
  // Version 1 of fragment 1 was sent after step 6, version 2 after step 10.
  EXPECT_THAT(driver_.Train(6), ElementsAre("train 3", "rebase 0", "rebase 1"));
  EXPECT_EQ(driver_.loop().step(), 6);
  driver_.ReceiveUpdate(0, false);
  driver_.ReceiveUpdate(1, false);
  EXPECT_THAT(driver_.Train(11),
              ElementsAre("train 7", "rebase 0", "rebase 1", "train 11"));
}

TEST_F(ConnectedIslandTest, MovesOnAlsoIfTheUpdateOfAnotherFragmentFollows) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, true);
  driver_.Train(6);
  driver_.Contribute(1);
  // Version 2 of fragment 0 was sent after step 8.
  driver_.Publish({2, 1});
  driver_.ReceiveUpdate(0, false);
  driver_.ReceiveUpdate(1, true);
  EXPECT_THAT(driver_.Train(9),
              ElementsAre("train 7", "rebase 0", "mix 1", "train 9"));
}

TEST_F(ConnectedIslandTest, PassesOverTheStepsThatASlowIslandLeavesOut) {
  v1::SessionResponse view = driver_.loop().membership().state();
  view.set_inner_steps_per_round(2);
  driver_.loop().membership().ViewArrived(view, driver_.now());
  EXPECT_THAT(driver_.Train(4),
              ElementsAre("begin", "train 2", "train 4", "snapshot 0"));
  EXPECT_EQ(driver_.Contribute(0).inner_steps(), 2);
}

TEST_F(ConnectedIslandTest, StandsStillWhileTheRunIsPaused) {
  driver_.Train(2);
  driver_.Publish({0, 0}, v1::PAUSED);
  // The step under way is finished.
  EXPECT_THAT(driver_.Train(), ElementsAre("train 3", "wait"));
  driver_.Sleep(absl::Minutes(1));
  EXPECT_EQ(driver_.loop().waited(driver_.now()), absl::ZeroDuration());
  driver_.Publish({0, 0});
  EXPECT_THAT(driver_.Train(4), ElementsAre("train 4", "snapshot 0"));
}

TEST_F(ConnectedIslandTest, HandsInWhatItHasTrainedBeforeItLeaves) {
  driver_.Train(5);
  driver_.loop().RequestLeave("signal 15");
  // Fragment 0 was sent after step 4, and is not yet accepted.
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 6", "snapshot 1", "wait 30s"));
  v1::ContributionHeader header = driver_.Contribute(1);
  EXPECT_TRUE(header.partial());
  EXPECT_EQ(header.tokens(), 60);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, true);
  EXPECT_THAT(driver_.Train(), ElementsAre("mix 0", "snapshot 0", "wait 30s"));
  header = driver_.Contribute(0);
  EXPECT_TRUE(header.partial());
  EXPECT_EQ(header.tokens(), 20);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
  EXPECT_TRUE(driver_.loop().has_handed_in());
}

TEST_F(ConnectedIslandTest, LeavesWhenHandingInTakesTooLong) {
  driver_.Train(2);
  driver_.loop().RequestLeave("signal 15");
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 3", "snapshot 0", "snapshot 1", "wait 30s"));
  driver_.Sleep(absl::Seconds(30));
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
  EXPECT_FALSE(driver_.loop().has_handed_in());
}

TEST(OuterLoopTest, LeavesAtOnceIfItHasNotTrained) {
  IslandDriver driver;
  driver.joined().set_run_state(v1::WAITING_FOR_ISLANDS);
  driver.Connect();
  driver.Train();
  driver.loop().RequestLeave("signal 15");
  EXPECT_THAT(driver.Train(), ElementsAre("end CANCELLED: signal 15"));
}

TEST_F(ConnectedIslandTest, EndsWhenTheRunIsFinishedByOthers) {
  driver_.Train(3);
  driver_.Publish({3, 3}, v1::FINISHED);
  // The step under way is finished, and every update is applied.
  for (int version = 1; version <= 3; ++version) {
    driver_.ReceiveUpdate(0, false);
    driver_.ReceiveUpdate(1, false);
    if (version < 3) {
      EXPECT_THAT(driver_.Train(), testing::Contains("rebase 1"));
    }
  }
  EXPECT_THAT(driver_.Train(), ElementsAre("rebase 0", "rebase 1", "end OK"));
}

TEST_F(ConnectedIslandTest, EndsWithTheFirstFailure) {
  driver_.Train(4);
  driver_.loop().Failed(absl::DataLossError("the GPU is gone"));
  EXPECT_THAT(driver_.Train(), ElementsAre("end DATA_LOSS: the GPU is gone"));
}

TEST_F(ConnectedIslandTest, AFragmentsFailureEndsTheIsland) {
  driver_.Train(4);
  const FragmentAction action = driver_.OfFragment(0);
  ASSERT_TRUE(std::holds_alternative<action::Contribute>(action));
  driver_.loop().exchange(0).ContributionAnswered(
      std::get<action::Contribute>(action),
      absl::OutOfRangeError("the replica has diverged"), "", driver_.now());
  EXPECT_THAT(driver_.Train(),
              testing::Contains(StartsWith("end OUT_OF_RANGE")));
}

// Another thread may report a failure while the trainer applies an update.
TEST_F(ConnectedIslandTest, AnUpdateMayBeAppliedAfterAFailure) {
  driver_.Train(4);
  driver_.Contribute(0);
  driver_.ReceiveUpdate(0, true);
  driver_.loop().Stepped(IslandDriver::kTokens);
  ASSERT_TRUE(std::holds_alternative<action::Apply>(driver_.Trainer()));
  driver_.loop().Failed(absl::DataLossError("the replica is lost"));
  driver_.loop().Applied();
  EXPECT_THAT(driver_.Train(),
              ElementsAre("end DATA_LOSS: the replica is lost"));
}

TEST_F(ConnectedIslandTest, AStopEndsEveryActor) {
  driver_.Train(4);
  driver_.loop().RequestStop();
  EXPECT_TRUE(std::holds_alternative<action::End>(driver_.OfFragment(0)));
  driver_.loop().Stepped(IslandDriver::kTokens);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: stopped"));
}

OuterLoop::Options WithCheckpoints() {
  OuterLoop::Options options = IslandDriver::Options();
  options.checkpoint_steps = 3;
  return options;
}

TEST(OuterLoopTest, SavesCheckpointsWithWhatNoUpdateContains) {
  IslandDriver driver(WithCheckpoints());
  driver.Connect();
  // The first checkpoint is due at once, so that a successor knows which
  // process it replaces.
  EXPECT_THAT(driver.Train(5),
              ElementsAre("begin", "save 0", "train 1", "train 2", "train 3",
                          "save 3", "train 4", "snapshot 0", "train 5"));
  driver.Contribute(0);
  driver.ReceiveUpdate(0, true);
  driver.Train(6);
  driver.Contribute(1);
  EXPECT_THAT(driver.Train(6), ElementsAre());
  const v1::IslandCheckpoint& saved = driver.saved();
  EXPECT_EQ(saved.run_id(), "run");
  EXPECT_EQ(saved.run_step(), 6);
  EXPECT_EQ(saved.fragments(0).anchor().version(), 1);
  EXPECT_EQ(saved.fragments(0).tokens(), 20);
  // Contributions in flight may be lost.
  EXPECT_EQ(saved.fragments(1).anchor().version(), 0);
  EXPECT_EQ(saved.fragments(1).tokens(), 60);
}

TEST(OuterLoopTest, ACheckpointThatCannotBeSavedIsDueAfterTheNextStep) {
  IslandDriver driver(WithCheckpoints());
  driver.Connect();
  driver.Train(2);
  driver.set_saves(false);
  EXPECT_THAT(driver.Train(4), ElementsAre("train 3", "save 3", "train 4",
                                           "snapshot 0", "save 4"));
  driver.set_saves(true);
  EXPECT_THAT(driver.Train(5), ElementsAre("train 5", "save 5"));
}

class ResumeTest : public testing::Test {
 protected:
  // A checkpoint of step 6, at version 1 of fragment 0.
  ResumeTest() {
    IslandDriver first(WithCheckpoints());
    first.Connect();
    first.Train(4);
    first.Contribute(0);
    first.ReceiveUpdate(0, true);
    first.Train(6);
    options_.resume = first.saved();
  }

  // Starts a process with the checkpoint while the run has these versions.
  void Resume(uint64_t version_0, uint64_t version_1) {
    driver_.emplace(options_);
    driver_->joined().mutable_heads(0)->set_version(version_0);
    driver_->joined().mutable_heads(1)->set_version(version_1);
  }

  OuterLoop::Options options_ = WithCheckpoints();
  std::optional<IslandDriver> driver_;
};

TEST_F(ResumeTest, GoesOnFromTheCheckpoint) {
  Resume(1, 0);
  driver_->Connect();
  // Training in flight at the checkpoint is sent again, and counts as an
  // earlier process's.
  EXPECT_THAT(driver_->Train(6),
              ElementsAre("begin from checkpoint", "snapshot 1", "save 6"));
  const v1::ContributionHeader header = driver_->Contribute(1);
  EXPECT_EQ(header.tokens(), 60);
  EXPECT_EQ(header.restored_tokens(), 60);
}

// The previous process had handed in more than its checkpoint knows.
TEST_F(ResumeTest, TrainingThatTheRunHasMergedCountsOnce) {
  Resume(1, 1);
  driver_->Connect();
  // It catches up before it sends.
  EXPECT_THAT(driver_->Train(), ElementsAre("begin from checkpoint", "wait"));
  driver_->ReceiveUpdate(1, false, {.tokens = 60, .inner_steps = 6});
  EXPECT_THAT(driver_->Train(6), ElementsAre("mix 1", "save 6"));
  EXPECT_TRUE(driver_->loop().window(1).empty());
  EXPECT_EQ(driver_->loop().exchange(1).version(), 1);
}

// All training in the checkpoint is merged, but others may wait for a
// contribution to the last round.
TEST_F(ResumeTest, RepeatsTheLastStepIfItHasNothingToSend) {
  options_.resume->set_run_step(12);
  options_.resume->mutable_fragments(1)->mutable_anchor()->set_version(3);
  Resume(2, 3);
  driver_->Connect();
  EXPECT_THAT(driver_->Train(), ElementsAre("begin from checkpoint", "wait"));
  driver_->ReceiveUpdate(0, false, {.tokens = 20, .inner_steps = 2});
  EXPECT_THAT(driver_->Train(), ElementsAre("mix 0", "save 11", "train 12",
                                            "snapshot 0", "wait"));
}

TEST_F(ResumeTest, StartsAfreshIfTheRunIsTooFarAhead) {
  Resume(2, 4);
  driver_->joined().set_run_step(10);
  driver_->Connect();
  EXPECT_THAT(driver_->Train(0),
              ElementsAre("fetch 0 at 2", "fetch 1 at 4", "begin", "save 10"));
}

TEST_F(ResumeTest, AllTheUpdatesThatAreKeptLeadOnFromTheCheckpoint) {
  Resume(1, 3);
  driver_->Connect();
  EXPECT_THAT(driver_->Train(0), Contains("begin from checkpoint"));
}

// The checkpoint's version is newer than the run's, or has other values.
TEST_F(ResumeTest, StartsAfreshInARunWithAnotherHistory) {
  for (const uint64_t version : {0, 1}) {
    Resume(version, 0);
    driver_->joined().mutable_heads(0)->set_digest("another");
    driver_->Connect();
    EXPECT_THAT(driver_->Train(0), Contains("begin")) << version;
  }
}

TEST_F(ResumeTest, ACheckpointOfAnotherRunIsRefused) {
  Resume(0, 0);
  driver_->joined().mutable_identity()->set_run_id("another");
  driver_->Connect();
  EXPECT_THAT(driver_->Train(),
              ElementsAre(StartsWith("end FAILED_PRECONDITION")));
}

TEST_F(ResumeTest, ACheckpointOfAnotherOptimizerIsRefused) {
  EXPECT_EQ(options_.resume->optimizer(), "ADAMW");
  Resume(0, 0);
  driver_->joined().mutable_config()->mutable_training()->set_optimizer(
      v1::TrainingConfig::MUON);
  driver_->Connect();
  EXPECT_THAT(driver_->Train(),
              ElementsAre(StartsWith("end FAILED_PRECONDITION")));
}

// Checkpoints of older releases do not name the optimizer.
TEST_F(ResumeTest, AnOptimizerWithoutANameIsAdamW) {
  options_.resume->clear_optimizer();
  Resume(1, 0);
  driver_->Connect();
  EXPECT_THAT(driver_->Train(6),
              ElementsAre("begin from checkpoint", "snapshot 1", "save 6"));
}

}  // namespace
}  // namespace causeway
