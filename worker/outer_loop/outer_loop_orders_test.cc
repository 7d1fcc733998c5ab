// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the contents of the outer loop's orders, and its views.
#include <algorithm>
#include <variant>

#include "absl/time/time.h"
#include "common/backoff.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/outer_loop.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

// Returns the trainer's next action, which must be of this kind.
template <typename Action>
Action Next(IslandDriver& driver) {
  const TrainerAction next = driver.Trainer();
  const auto* const action = std::get_if<Action>(&next);
  if (action != nullptr) return *action;
  ADD_FAILURE() << "action " << next.index();
  return {};
}

TEST(OuterLoopOrdersTest, ParametersAreFetchedAndBegunWith) {
  IslandDriver driver;
  driver.joined().mutable_identity()->set_incarnation(4);
  driver.joined().mutable_heads(1)->set_version(2);
  driver.Connect();
  // The host makes version 0 by itself, or fetches it like any other.
  EXPECT_EQ(Next<action::FetchParameters>(driver).request.version(), 0);
  v1::FragmentHead made;
  made.set_digest("made");
  driver.loop().ParametersAnswered(made, driver.now());
  const auto fetch = Next<action::FetchParameters>(driver);
  EXPECT_EQ(fetch.request.identity().incarnation(), 4);
  EXPECT_EQ(fetch.request.fragment(), 1);
  EXPECT_EQ(fetch.request.version(), 2);
  v1::FragmentHead head;
  head.set_version(2);
  head.set_digest("fetched");
  driver.loop().ParametersAnswered(head, driver.now());
  const auto begin = Next<action::Begin>(driver);
  ASSERT_EQ(begin.heads.size(), 2);
  EXPECT_EQ(begin.heads[0].version(), 0);
  EXPECT_EQ(begin.heads[0].digest(), "made");
  EXPECT_EQ(begin.heads[1].digest(), "fetched");
  driver.loop().Begun();
  EXPECT_EQ(driver.loop().exchange(0).version(), 0);
  EXPECT_EQ(driver.loop().exchange(1).version(), 2);
}

TEST(OuterLoopOrdersTest, AFetchThatFailsForNowIsTriedAgainLaterAndLater) {
  IslandDriver driver;
  driver.joined().mutable_heads(0)->set_version(2);
  driver.joined().mutable_heads(1)->set_version(2);
  driver.Connect();
  const auto pause = [&] {
    Next<action::FetchParameters>(driver);
    driver.loop().ParametersAnswered(absl::UnavailableError("reset"),
                                     driver.now());
    const absl::Duration wait = Next<action::Wait>(driver).until - driver.now();
    driver.Sleep(wait);
    return wait;
  };
  absl::Duration longest;
  for (int i = 0; i < 8; ++i) longest = std::max(longest, pause());
  EXPECT_GT(longest, absl::Seconds(2));
  Next<action::FetchParameters>(driver);
  driver.loop().ParametersAnswered(v1::FragmentHead(), driver.now());
  EXPECT_LE(pause(), Backoff::Options().first) << "after a success";
}

TEST(OuterLoopOrdersTest, AFetchThatIsRefusedEndsTheIsland) {
  IslandDriver driver;
  driver.joined().mutable_heads(0)->set_version(2);
  driver.Connect();
  Next<action::FetchParameters>(driver);
  driver.loop().ParametersAnswered(absl::PermissionDeniedError("who?"),
                                   driver.now());
  EXPECT_THAT(driver.Train(), ElementsAre("end PERMISSION_DENIED: who?"));
}

TEST(OuterLoopOrdersTest, AFetchBesideTheTrainerDoesNotDelayALeave) {
  IslandDriver driver;
  driver.Connect();
  Next<action::FetchParameters>(driver);
  driver.loop().FetchStarted();
  Next<action::Wait>(driver);
  driver.loop().RequestLeave("SIGTERM");
  EXPECT_THAT(driver.Train(), ElementsAre("end CANCELLED: SIGTERM"));
  // The host's answer comes too late.
  driver.loop().ParametersAnswered(absl::PermissionDeniedError("who?"),
                                   driver.now());
  EXPECT_THAT(driver.Train(), ElementsAre("end CANCELLED: SIGTERM"));
}

TEST(OuterLoopOrdersTest, AnIslandMayHaveItsOwnBits) {
  OuterLoop::Options options = IslandDriver::Options();
  options.uplink_bits = 0.75;
  IslandDriver refused(options);
  refused.Connect();
  EXPECT_THAT(
      refused.Train(),
      ElementsAre(StartsWith(
          "end FAILED_PRECONDITION: uplink_bits of this island is 0.75, but")));
  IslandDriver driver(options);
  driver.joined()
      .mutable_config()
      ->mutable_synchronization()
      ->set_uplink_format(v1::ECQ);
  driver.Connect();
  driver.Train(1);
  EXPECT_EQ(driver.loop().config().synchronization().ecq_bits(), 0.75);
}

// Returns the bits of fragment 0's next contribution.
double BitsOfContribution(IslandDriver& driver) {
  driver.Train(4);
  const FragmentAction action = driver.OfFragment(0);
  const auto* contribute = std::get_if<action::Contribute>(&action);
  EXPECT_NE(contribute, nullptr);
  return contribute == nullptr ? -1 : contribute->uplink_bits;
}

TEST(OuterLoopOrdersTest, BitsAreTheIslandsOwnOrPlannedOrTheRuns) {
  for (const bool is_planned : {false, true}) {
    for (const bool is_own : {false, true}) {
      OuterLoop::Options options = IslandDriver::Options();
      if (is_own) options.uplink_bits = 0.75;
      IslandDriver driver(options);
      v1::SynchronizationConfig& sync =
          *driver.joined().mutable_config()->mutable_synchronization();
      sync.set_uplink_format(v1::ECQ);
      sync.set_ecq_bits(4);
      driver.Connect();
      v1::SessionResponse view = driver.loop().membership().state();
      if (is_planned) view.set_uplink_bits(1.5);
      driver.loop().membership().ViewArrived(view, driver.now());
      const double want = is_own ? 0.75 : is_planned ? 1.5 : 4;
      EXPECT_EQ(BitsOfContribution(driver), want);
      EXPECT_EQ(driver.loop().uplink_bits(), want);
      EXPECT_EQ(driver.loop().has_own_uplink_bits(), is_own);
    }
  }
  IslandDriver other;
  other.Connect();
  EXPECT_EQ(BitsOfContribution(other), 0) << "a format without a target";
}

TEST(OuterLoopOrdersTest, AnIslandMayHaveItsOwnOverlap) {
  OuterLoop::Options options = IslandDriver::Options();
  options.overlap_steps = 2;
  IslandDriver driver(options);
  EXPECT_EQ(driver.loop().overlap_steps(), 0) << "before the join";
  driver.Connect();
  EXPECT_EQ(driver.loop().overlap_steps(), 2);
  driver.Train(4);
  EXPECT_EQ(driver.loop().config().synchronization().overlap_steps(), 2);
  driver.Contribute(0);
  driver.ReceiveUpdate(0, true);
  EXPECT_THAT(driver.Train(6),
              ElementsAre("train 5", "train 6", "mix 0", "snapshot 1"));
}

TEST(OuterLoopOrdersTest, ACheckpointSaysWhoseItIs) {
  OuterLoop::Options options = IslandDriver::Options();
  options.checkpoint_steps = 3;
  options.join.set_instance_id(77);
  IslandDriver driver(options);
  driver.joined().set_shard(5);
  driver.Connect();
  driver.Train(1);
  EXPECT_EQ(driver.saved().run_id(), "run");
  EXPECT_EQ(driver.saved().island_id(), "north");
  EXPECT_EQ(driver.saved().instance_id(), 77);
  EXPECT_EQ(driver.saved().shard(), 5);
  ASSERT_EQ(driver.saved().fragments_size(), 2);
  EXPECT_EQ(driver.saved().fragments(1).anchor().fragment(), 1);
}

TEST_F(ConnectedIslandTest, EveryActorEndsWhenTheMembershipFails) {
  driver_.Train(1);
  driver_.loop().membership().StreamBroke();
  driver_.loop().membership().StreamEnded(absl::PermissionDeniedError("who?"),
                                          driver_.now());
  EXPECT_TRUE(std::holds_alternative<action::End>(driver_.OfFragment(1)));
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 2", "end PERMISSION_DENIED: who?"));
}

TEST_F(ConnectedIslandTest, StaleFragmentsFetchParametersOneAfterTheOther) {
  driver_.Train(1);
  driver_.Publish({5, 5});
  for (const uint32_t id : {0, 1}) {
    driver_.loop().exchange(id).UpdateAnswered(
        {.status = absl::NotFoundError("dropped")}, driver_.now());
  }
  const auto fetches = [&](uint32_t id) {
    return std::holds_alternative<action::FetchParameters>(
        driver_.OfFragment(id));
  };
  EXPECT_TRUE(fetches(0));
  EXPECT_TRUE(std::holds_alternative<action::Wait>(driver_.OfFragment(1)));
  v1::FragmentHead head;
  head.set_version(5);
  driver_.loop().exchange(0).ParametersAnswered(head, driver_.now());
  EXPECT_TRUE(driver_.loop().exchange(0).ready());
  EXPECT_TRUE(fetches(1));
}

TEST_F(ConnectedIslandTest, LeavingAFinishedRunDoesNotWait) {
  driver_.Train(2);
  driver_.loop().RequestLeave("signal 15");
  EXPECT_THAT(driver_.Train(),
              ElementsAre("train 3", "snapshot 0", "snapshot 1", "wait 30s"));
  driver_.Publish({0, 0}, v1::FINISHED);
  EXPECT_THAT(driver_.Train(), ElementsAre("end CANCELLED: signal 15"));
}

// Trains a whole run of this island alone. Returns the orders to validate, with
// the order before each, and the last order.
std::vector<std::string> ValidationsOf(IslandDriver& driver) {
  std::vector<std::string> done;
  const auto take = [&](std::vector<std::string> orders) {
    done.insert(done.end(), orders.begin(), orders.end());
  };
  const std::pair<uint64_t, uint32_t> sends[] = {
      {4, 0}, {6, 1}, {8, 0}, {10, 1}};
  for (const auto& [step, fragment] : sends) {
    take(driver.Train(step));
    driver.Contribute(fragment);
    driver.ReceiveUpdate(fragment, /*includes_island=*/true);
  }
  take(driver.Train());
  for (const uint32_t fragment : {0, 1}) {
    driver.Contribute(fragment);
    driver.ReceiveUpdate(fragment, true);
  }
  take(driver.Train());
  std::vector<std::string> validations;
  for (size_t i = 1; i < done.size(); ++i) {
    if (done[i].starts_with("validate")) {
      validations.push_back(absl::StrCat(done[i - 1], ", ", done[i]));
    }
  }
  validations.push_back(done.back());
  return validations;
}

TEST_F(ConnectedIslandTest, ValidatesWhenAllAnchorsHaveTheModelsVersion) {
  driver_.AskToValidate(1);
  EXPECT_THAT(
      ValidationsOf(driver_),
      ElementsAre("mix 1, validate 1 with 7", "mix 1, validate 2 with 7",
                  "mix 1, validate 3 with 7", "end OK"));
}

TEST_F(ConnectedIslandTest, ValidatesEveryNthVersionAndTheLast) {
  driver_.AskToValidate(2);
  EXPECT_THAT(ValidationsOf(driver_),
              ElementsAre("mix 1, validate 2 with 7",
                          "mix 1, validate 3 with 7", "end OK"));
}

TEST_F(ConnectedIslandTest, ValidatesOnlyIfItIsAskedTo) {
  EXPECT_THAT(ValidationsOf(driver_), ElementsAre("end OK"));
}

}  // namespace
}  // namespace causeway
