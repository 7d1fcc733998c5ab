// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/run_health.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

Member Gone(const std::string& name, absl::Time at, const std::string& reason,
            v1::IslandStatus::State state = v1::IslandStatus::EVICTED) {
  Member member;
  member.island_id = name;
  member.state = state;
  member.ended_at = at;
  member.reason = reason;
  return member;
}

// A run of 100 steps, two fragments and H = 10, with a grace window of 60 s.
class RunHealthTest : public testing::Test {
 protected:
  RunHealthTest() : RunHealthTest(absl::InfiniteFuture()) {}
  explicit RunHealthTest(absl::Time last_end,
                         absl::Time last_pause = absl::InfiniteFuture(),
                         absl::Time config_changed = absl::InfinitePast())
      : health_({.total_steps = 100,
                 .round_steps = 10,
                 .grace = absl::Seconds(60),
                 .last_end = last_end,
                 .last_pause = last_pause,
                 .config_changed = config_changed}) {
    moment_.state = v1::RUNNING;
    moment_.ready = 2;
    moment_.needed = 2;
    moment_.heads.assign(2, {.step = 0, .committed_at = kStart});
  }

  void Wait(double seconds) { now_ += absl::Seconds(seconds); }
  void Observe() { health_.Observe(moment_, now_); }

  // Merges the fragment's round that is sent at `step`.
  void Merge(size_t fragment, uint64_t step) {
    moment_.heads[fragment] = {.step = step, .committed_at = now_};
    Observe();
  }

  v1::RunStatus Describe() {
    Observe();
    v1::RunStatus status = status_;
    status.set_message(message_);
    status.set_quarantined(quarantined_);
    health_.Describe({.members = members_,
                      .claimed_round = claimed_round_,
                      .quarantined_since = kStart},
                     now_, status);
    return status;
  }

  // Returns the one problem.
  v1::Attention Problem() {
    const v1::RunStatus status = Describe();
    EXPECT_EQ(status.attention_size(), 1) << status.DebugString();
    return status.attention_size() == 1 ? status.attention(0) : v1::Attention();
  }

  RunHealth health_;
  RunHealth::Moment moment_;
  absl::Time now_ = kStart;
  std::map<std::string, Member> members_;
  // The status that Describe adds to.
  v1::RunStatus status_;
  absl::Duration claimed_round_;
  std::string message_;
  uint32_t quarantined_ = 0;
};

TEST_F(RunHealthTest, TheTimeLeftFollowsFromTheMedianOfTheLastRounds) {
  Observe();
  Wait(40);
  Merge(0, 5);
  // The duration of that round is unknown, because it may have begun before.
  EXPECT_FALSE(Describe().has_seconds_left());
  Wait(10);
  Merge(1, 10);
  // 5 steps in 10 s, and 90 steps are left.
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 180);
  Wait(4);
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 176);
  Wait(6);
  Merge(0, 15);
  Wait(50);
  Merge(1, 20);
  // One slow round does not count.
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 160);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  EXPECT_EQ(ToTime(Describe().last_round_at()), now_);
  EXPECT_EQ(Describe().islands_needed(), 2);
}

TEST_F(RunHealthTest, FragmentsOfOneStepAreOneRound) {
  Observe();
  Merge(0, 10);
  Wait(1);
  Merge(1, 10);
  Wait(19);
  Merge(0, 20);
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 160);
}

TEST_F(RunHealthTest, AfterARestartThePaceIsUnknown) {
  moment_.heads = {{.step = 20, .committed_at = kStart - absl::Seconds(1)},
                   {.step = 25, .committed_at = kStart - absl::Hours(1)}};
  EXPECT_FALSE(Describe().has_seconds_left());
  EXPECT_EQ(ToTime(Describe().last_round_at()), kStart - absl::Seconds(1));
  Wait(10);
  Merge(0, 30);
  EXPECT_FALSE(Describe().has_seconds_left());
  Wait(10);
  Merge(1, 35);
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 130);
}

TEST_F(RunHealthTest, TheClockOfTheProcessBeforeMayHaveBeenAhead) {
  moment_.heads = {{.step = 20, .committed_at = kStart + absl::Hours(24)},
                   {.step = 25, .committed_at = kStart + absl::Hours(24)}};
  EXPECT_EQ(ToTime(Describe().last_round_at()), kStart);
  Wait(10);
  Merge(0, 30);
  EXPECT_FALSE(Describe().has_seconds_left()) << "that process began the round";
  EXPECT_THAT(Describe().attention(), IsEmpty());
  Wait(10);
  Merge(1, 35);
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 130);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  Wait(151);
  EXPECT_EQ(Problem().text(), "no round is merged; usually one takes 20s");
}

TEST_F(RunHealthTest, AClockThatIsSetBackGivesNoPace) {
  Observe();
  Wait(100);
  Merge(0, 5);
  Wait(10);
  Merge(1, 10);
  for (const uint64_t step : {15, 20}) {
    Wait(-10);
    Merge(0, step);
  }
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 160);
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, WithoutItsIslandsARunHasNoTimeLeft) {
  Observe();
  Merge(0, 5);
  Wait(10);
  Merge(1, 10);
  ASSERT_TRUE(Describe().has_seconds_left());
  Wait(20);
  moment_.ready = 0;
  Observe();
  const absl::Time missing = now_;
  Wait(7);
  members_["a"] =
      Gone("a", now_ - absl::Seconds(1), "left", v1::IslandStatus::LEFT);
  members_["b"] = Gone("b", now_, "its disk is full", v1::IslandStatus::LEFT);
  v1::RunStatus status = Describe();
  EXPECT_FALSE(status.has_seconds_left());
  EXPECT_EQ(ToTime(status.missing_since()), missing);
  v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::CRITICAL);
  EXPECT_EQ(
      problem.text(),
      "waiting for 2 of 2 islands; the last to leave was b (its disk is full)");
  EXPECT_EQ(problem.command(), "causeway islands --all");
  EXPECT_EQ(ToTime(problem.since()), missing);

  // One comes back, which is not enough; then the other.
  Wait(100);
  moment_.ready = 1;
  EXPECT_THAT(Problem().text(), HasSubstr("waiting for 1 of 2 islands"));
  EXPECT_EQ(ToTime(Problem().since()), missing);
  Wait(100);
  moment_.ready = 2;
  Observe();
  Wait(5);
  status = Describe();
  EXPECT_FALSE(status.has_missing_since());
  EXPECT_THAT(status.attention(), IsEmpty());
  // The pace stays, and the round continues from now.
  EXPECT_DOUBLE_EQ(status.seconds_left(), 175);
  // The round that was held up does not change it.
  Wait(5);
  Merge(0, 15);
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 170);
}

TEST_F(RunHealthTest, ARunThatHasNotBegunWaits) {
  moment_.state = v1::WAITING_FOR_ISLANDS;
  moment_.begun = false;
  moment_.ready = 1;
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::WARNING);
  EXPECT_EQ(problem.text(), "waiting for 1 of 2 islands to begin");
  EXPECT_EQ(ToTime(problem.since()), kStart);
  // Nor is it critical while the run is paused.
  moment_.state = v1::PAUSED;
  EXPECT_EQ(Describe().attention(0).severity(), v1::WARNING);
}

// Rounds need islands that are ready; one that still loads is not.
TEST_F(RunHealthTest, AnIslandThatHasJoinedIsMissingUntilItIsReady) {
  Member& b = members_["b"];
  b.island_id = "b";
  b.first_contribution_version = {Member::kNotExpected, Member::kNotExpected};
  moment_.state = v1::WAITING_FOR_ISLANDS;
  moment_.begun = false;
  moment_.ready = 1;
  EXPECT_EQ(Problem().text(),
            "waiting for 1 of 2 islands to begin: b has joined, but is not "
            "ready");
  moment_.state = v1::RUNNING;
  moment_.begun = true;
  members_["a"] = Gone("a", kStart, "left", v1::IslandStatus::LEFT);
  EXPECT_EQ(Problem().text(),
            "waiting for 1 of 2 islands: b has joined, but is not ready");
  moment_.ready = 0;
  EXPECT_EQ(Problem().text(),
            "waiting for 2 of 2 islands: b has joined, but is not ready; the "
            "last to leave was a (left)");
  members_["c"] = b;
  EXPECT_EQ(Problem().text(),
            "waiting for 2 of 2 islands: 2 islands have joined, but are not "
            "ready");
  b.first_contribution_version = {0, 0};
  moment_.ready = 1;
  members_["c"].first_contribution_version = {0, 0};
  EXPECT_EQ(Problem().text(),
            "waiting for 1 of 2 islands; the last to leave was a (left)");
}

TEST_F(RunHealthTest, AnIslandThatReadsOtherDataIsNamedUntilItDoesNot) {
  Wait(5);
  moment_.other_data = {"west"};
  const absl::Time known = now_;
  Observe();
  Wait(7);
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::WARNING);
  EXPECT_EQ(problem.text(),
            "island west reads other data than the run's: restart it with the "
            "run's files, or accept its data if they are the right ones");
  EXPECT_EQ(problem.command(), "causeway data accept west");
  EXPECT_EQ(problem.island_id(), "west");
  EXPECT_EQ(ToTime(problem.since()), known);
  // It is accepted, so that the other island's data are not the run's.
  moment_.other_data = {"east"};
  Observe();
  EXPECT_EQ(Problem().island_id(), "east");
  EXPECT_EQ(ToTime(Problem().since()), now_);
  moment_.other_data.clear();
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, RoundsStandStillIfTheyTakeMuchLongerThanUsual) {
  Observe();
  Merge(0, 5);
  Wait(10);
  Merge(1, 10);
  // A round takes 20 s: 3 * 20 + 60 + 30.
  const absl::Time merged = now_;
  Wait(150);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  EXPECT_TRUE(Describe().has_seconds_left());
  Wait(1);
  EXPECT_FALSE(Describe().has_seconds_left());
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::CRITICAL);
  EXPECT_EQ(problem.text(), "no round is merged; usually one takes 20s");
  EXPECT_EQ(problem.command(), "causeway fragments");
  EXPECT_EQ(ToTime(problem.since()), merged);
  Merge(0, 15);
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, TheFirstRoundIsAsLongAsTheIslandsSay) {
  claimed_round_ = absl::Seconds(500);
  Observe();
  Wait(3 * 500 + 90);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  Wait(1);
  EXPECT_EQ(Problem().text(), "no round is merged");
  // If they report nothing, they may be loading parameters.
  claimed_round_ = absl::ZeroDuration();
  EXPECT_THAT(Describe().attention(), IsEmpty());
  Wait(2100);
  EXPECT_EQ(Problem().text(), "no round is merged");
}

TEST_F(RunHealthTest, APauseIsNoStandstill) {
  Observe();
  Merge(0, 5);
  Wait(10);
  Merge(1, 10);
  moment_.state = v1::PAUSED;
  message_ = "moving the disk";
  Observe();
  const absl::Time paused = now_;
  Wait(10000);
  EXPECT_FALSE(Describe().has_seconds_left());
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::NOTICE);
  EXPECT_EQ(problem.text(), "the run is held: moving the disk");
  EXPECT_EQ(problem.command(), "causeway resume");
  EXPECT_EQ(ToTime(problem.since()), paused);
  moment_.state = v1::RUNNING;
  EXPECT_DOUBLE_EQ(Describe().seconds_left(), 180);
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, APauseDoesNotHideADiskThatFails) {
  moment_.state = v1::PAUSED;
  message_ = "moving the disk";
  moment_.storage_problem = "disk full";
  const v1::RunStatus status = Describe();
  ASSERT_EQ(status.attention_size(), 2);
  EXPECT_EQ(status.attention(0).severity(), v1::WARNING);
  EXPECT_EQ(status.attention(0).text(),
            "nothing could be committed; the coordinator retries once the run "
            "is resumed: disk full");
  EXPECT_EQ(status.attention(1).text(), "the run is held: moving the disk");
}

TEST_F(RunHealthTest, AFollowerThatIsNotTakenOutHoldsTheRun) {
  Observe();
  v1::FollowerStatus& follower = *status_.add_followers();
  follower.set_name("b");
  follower.set_state(v1::FollowerStatus::IN_SYNC);
  follower.set_changes_behind(1);
  follower.set_seconds_behind(6);
  EXPECT_THAT(Describe().attention(), IsEmpty()) << "it may be taken out yet";
  follower.set_seconds_behind(20);
  follower.set_at_work(true);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  follower.set_at_work(false);
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::CRITICAL);
  EXPECT_THAT(problem.text(),
              HasSubstr("versions wait for follower b, which lacks 1 change:"));
  EXPECT_EQ(ToTime(problem.since()), now_ - absl::Seconds(20));
  // No island is to blame for rounds that stand still.
  Wait(10000);
  EXPECT_EQ(Problem().text(), problem.text());
  status_.clear_followers();
  EXPECT_EQ(Problem().text(), "no round is merged");
}

TEST_F(RunHealthTest, AProblemWithEtcdIsReported) {
  Observe();
  Wait(10);
  moment_.etcd_problem = "etcd does not answer";
  Observe();
  const absl::Time begin = now_;
  Wait(60);
  const v1::Attention problem = Problem();
  EXPECT_EQ(problem.severity(), v1::WARNING);
  EXPECT_EQ(problem.text(), "etcd does not answer");
  EXPECT_EQ(ToTime(problem.since()), begin);
  moment_.etcd_problem.clear();
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, TheMostSevereProblemComesFirst) {
  moment_.state = v1::SUSPENDED;
  message_ = "disk full";
  quarantined_ = 2;
  members_["a"] = Gone("a", kStart, "no heartbeat for 10 s");
  members_["b"] = Gone("b", kStart, "not finite", v1::IslandStatus::DIVERGED);
  const v1::RunStatus status = Describe();
  ASSERT_EQ(status.attention_size(), 4);
  EXPECT_EQ(status.attention(0).severity(), v1::CRITICAL);
  EXPECT_EQ(status.attention(0).text(),
            "nothing can be committed: disk full; see docs/repair.md");
  EXPECT_EQ(status.attention(0).command(), "");
  EXPECT_EQ(status.attention(1).text(),
            "2 contributions wait in quarantine for a decision");
  EXPECT_EQ(status.attention(1).command(), "causeway quarantine list");
  EXPECT_EQ(status.attention(2).severity(), v1::WARNING);
  EXPECT_EQ(status.attention(2).text(),
            "island a is gone (no heartbeat for 10 s): restart it, or evict it "
            "if it should stay away");
  EXPECT_EQ(status.attention(2).command(), "causeway evict a");
  EXPECT_EQ(status.attention(2).island_id(), "a");
  EXPECT_THAT(status.attention(3).text(),
              HasSubstr("island b has diverged and not rejoined"));
}

TEST_F(RunHealthTest, FollowersThatAreBehindOrMissingAreReported) {
  status_.mutable_config()->mutable_storage()->set_sync_replicas(1);
  v1::FollowerStatus& follower = *status_.add_followers();
  follower.set_name("b");
  follower.set_state(v1::FollowerStatus::IN_SYNC);
  EXPECT_THAT(Describe().attention(), IsEmpty());
  follower.set_state(v1::FollowerStatus::BEHIND);
  follower.set_changes_behind(7);
  follower.set_seconds_behind(8);
  moment_.lacks_followers = true;
  Observe();
  const absl::Time begin = now_;
  Wait(60);
  const v1::RunStatus status = Describe();
  ASSERT_EQ(status.attention_size(), 2);
  EXPECT_EQ(status.attention(0).text(), "follower b lacks 7 changes");
  EXPECT_EQ(ToTime(status.attention(0).since()), now_ - absl::Seconds(8));
  EXPECT_EQ(status.attention(1).severity(), v1::WARNING);
  EXPECT_THAT(status.attention(1).text(),
              HasSubstr("versions wait for 0 of 1 followers"));
  EXPECT_EQ(ToTime(status.attention(1).since()), begin);
}

TEST_F(RunHealthTest, IslandsThatLeftOrWereEvictedByAnOperatorAreNotMissed) {
  members_["a"] = Gone("a", kStart, "drained", v1::IslandStatus::LEFT);
  members_["b"] = Gone("b", kStart, "by an operator: its rack is sold");
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RunHealthTest, AFinishedRunNeedsNothing) {
  moment_.state = v1::FINISHED;
  moment_.ready = 0;
  members_["a"] = Gone("a", kStart, "no heartbeat for 10 s");
  const v1::RunStatus status = Describe();
  EXPECT_THAT(status.attention(), IsEmpty());
  EXPECT_FALSE(status.has_missing_since());
}

// A peer determines the number of names and the length of its reasons.
TEST_F(RunHealthTest, TheListIsBounded) {
  for (int i = 0; i < 1000; ++i) {
    const std::string name = absl::StrCat(i);
    members_[name] = Gone(name, kStart, std::string(1000, 'x'));
  }
  const v1::RunStatus status = Describe();
  EXPECT_EQ(status.attention_size(), RunHealth::kMostProblems);
  EXPECT_THAT(status.attention(0).text(), testing::SizeIs(testing::Lt(200)));
}

class RestartedRunHealthTest : public RunHealthTest {
 protected:
  RestartedRunHealthTest()
      : RunHealthTest(kStart - absl::Hours(2), kStart - absl::Hours(1),
                      /*config_changed=*/kStart) {}
};

TEST_F(RestartedRunHealthTest, IslandsWithAnEarlierConfigurationAreNamed) {
  for (const char* name : {"a", "b", "gone"}) {
    members_[name].joined_at = kStart - absl::Hours(1);
  }
  members_["gone"].state = v1::IslandStatus::LEFT;
  members_["new"].joined_at = kStart;
  EXPECT_EQ(Problem().severity(), v1::WARNING);
  EXPECT_EQ(Problem().text(),
            "a, b train by an earlier configuration: restart them");
  EXPECT_EQ(ToTime(Problem().since()), kStart);
  members_["a"].joined_at = kStart + absl::Seconds(1);
  EXPECT_EQ(Problem().text(),
            "b trains by an earlier configuration: restart it");
  members_["b"].state = v1::IslandStatus::LEFT;
  EXPECT_THAT(Describe().attention(), IsEmpty());
}

TEST_F(RestartedRunHealthTest, ARunIsHeldFromBeforeTheRestart) {
  moment_.state = v1::PAUSED;
  EXPECT_EQ(ToTime(Problem().since()), kStart - absl::Hours(1));
  moment_.state = v1::RUNNING;
  Observe();
  moment_.state = v1::PAUSED;
  Wait(5);
  EXPECT_EQ(ToTime(Problem().since()), now_);
}

TEST_F(RestartedRunHealthTest, IslandsAreMissedFromBeforeTheRestart) {
  moment_.ready = 1;
  EXPECT_EQ(ToTime(Describe().missing_since()), kStart - absl::Hours(2));
  moment_.ready = 2;
  Observe();
  moment_.ready = 1;
  Wait(5);
  EXPECT_EQ(ToTime(Describe().missing_since()), now_);
}

}  // namespace
}  // namespace causeway
