// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what a coordinator makes of islands' reports: the run's history, and
// who measures the merged model.
#include <cstdint>
#include <limits>
#include <string>

#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr char kData[] = "data of the run!";
constexpr char kOtherData[] = "some other data!";

CoordinatorDriver::Options Validating() {
  return {.rounds = 20, .configure = [](v1::RunConfig& config) {
            config.mutable_validation()->set_every_rounds(2);
          }};
}

v1::IslandProgress Measured(uint64_t version, double loss) {
  v1::IslandProgress progress;
  progress.set_data_digest(kData);
  progress.mutable_validation()->set_version(version);
  progress.mutable_validation()->set_loss(loss);
  progress.mutable_validation()->set_tokens(100);
  progress.mutable_validation()->set_seconds(0.5);
  return progress;
}

v1::IslandProgress Reading(const std::string& data) {
  v1::IslandProgress progress;
  progress.set_data_digest(data);
  return progress;
}

v1::IslandProgress WithSteps(double seconds) {
  v1::IslandProgress progress;
  progress.set_step_seconds(seconds);
  return progress;
}

// Commits versions until the run has `version`.
void CommitUntil(CoordinatorDriver& run, const v1::IslandIdentity& island,
                 uint64_t version) {
  while (run.version() < version) {
    ASSERT_OK(run.Contribute(Contribution(island, run.version())));
    run.Tick();
    run.Commit();
  }
}

bool IsAsked(CoordinatorDriver& run, const v1::IslandIdentity& island) {
  return run.core().View(island).validation().every_rounds() == 2;
}

TEST(CoordinatorReports, AnIslandThatIsSlowerThanTheMedianIsNamedOnce) {
  CoordinatorDriver run(Validating());
  const auto slow = run.Join("slow");
  for (const char* name : {"a", "b"}) {
    ASSERT_OK(run.Heartbeat(run.Join(name), WithSteps(1)));
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(run.Heartbeat(slow, WithSteps(2 + 0.001 * i)));
  }
  EXPECT_EQ(run.CountEvents("island_slow"), 1);
  // A heartbeat that repeats the last report shows nothing new.
  for (int i = 0; i < 20; ++i) ASSERT_OK(run.Heartbeat(slow, WithSteps(1)));
  EXPECT_EQ(run.CountEvents("island_even"), 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(run.Heartbeat(slow, WithSteps(1 + 0.001 * i)));
  }
  EXPECT_EQ(run.CountEvents("island_slow"), 1);
  EXPECT_EQ(run.CountEvents("island_even"), 1);
}

TEST(CoordinatorReports, ASlowIslandIsAskedToLeaveIfEnoughOthersRemain) {
  CoordinatorDriver run(
      {.min_islands = 3, .quorum = 2, .drain_slow_after = absl::Seconds(10)});
  const auto slow = run.Join("slow");
  const auto a = run.Join("a");
  const auto b = run.Join("b");
  int reports = 0;
  const auto report = [&](const v1::IslandIdentity& island, double seconds) {
    run.Advance(absl::Seconds(1));
    ASSERT_OK(run.Heartbeat(island, WithSteps(seconds + 1e-6 * ++reports)));
  };
  const auto leaves = [&] { return run.CountEvents("island_draining"); };
  for (const auto& island : {a, b}) report(island, 1);
  for (int i = 0; i < 14; ++i) report(slow, 2);
  EXPECT_EQ(leaves(), 0) << "not slow for long enough";
  // A break ends the time.
  for (int i = 0; i < 5; ++i) report(slow, 1);
  for (int i = 0; i < 14; ++i) report(slow, 2);
  EXPECT_EQ(leaves(), 0);
  // Time in which no island can train does not count: a pause, a suspension,
  // and a stop of the coordinator, whose first event may be a report.
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  run.Advance(absl::Hours(1));
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  report(slow, 2);
  EXPECT_EQ(leaves(), 0);
  run.core().StorageChecked(absl::InternalError("disk full"), run.effects());
  ASSERT_EQ(run.core().run_state(), v1::SUSPENDED);
  run.Advance(absl::Hours(1));
  run.core().StorageChecked(absl::OkStatus(), run.effects());
  report(slow, 2);
  EXPECT_EQ(leaves(), 0);
  run.Advance(absl::Hours(1));
  report(slow, 2);
  EXPECT_EQ(leaves(), 0);
  // The time before still counts.
  report(slow, 2);
  EXPECT_EQ(leaves(), 1);
  EXPECT_TRUE(run.core().View(slow).drain());
  for (const auto& island : {a, b}) report(island, 1);
  for (int i = 0; i < 30; ++i) report(b, 9);
  EXPECT_EQ(run.CountEvents("island_slow"), 3);
  EXPECT_EQ(leaves(), 1) << "the quorum needs both";
}

TEST(CoordinatorReports, TheLongestMemberWithTheRunsDataMeasures) {
  CoordinatorDriver run(Validating());
  const auto foreign = run.Join("a");
  run.Advance(absl::Seconds(1));
  const auto second = run.Join("z");
  run.Advance(absl::Seconds(1));
  const auto third = run.Join("b");
  EXPECT_FALSE(IsAsked(run, foreign)) << "it has named no data";
  ASSERT_OK(run.Heartbeat(second, Reading(kData)));
  EXPECT_EQ(run.effects().flags->data_digest, kData);
  ASSERT_OK(run.Heartbeat(foreign, Reading(kOtherData)));
  ASSERT_OK(run.Heartbeat(foreign, Reading(kOtherData)));
  ASSERT_OK(run.Heartbeat(third, Reading(kData)));
  EXPECT_EQ(run.CountEvents("data_differs"), 1);
  EXPECT_FALSE(IsAsked(run, foreign));
  EXPECT_TRUE(IsAsked(run, second));
  EXPECT_FALSE(IsAsked(run, third));
  ASSERT_OK(run.core().Drain("z", "", run.effects()));
  EXPECT_FALSE(IsAsked(run, second));
  EXPECT_TRUE(IsAsked(run, third)) << "who leaves measures no more";
  ASSERT_OK(run.Leave(third));
  EXPECT_FALSE(IsAsked(run, foreign)) << "its split is another one";
}

bool Differs(CoordinatorDriver& run, const std::string& island) {
  const Member& member = run.core().membership().members().at(island);
  return run.core().DataDiffers(member);
}

TEST(CoordinatorReports, TheMajoritysDataAreTheRuns) {
  CoordinatorDriver run(Validating());
  const auto first = run.Join("a");
  ASSERT_OK(run.Heartbeat(first, Reading(kOtherData)));
  const auto second = run.Join("b");
  ASSERT_OK(run.Heartbeat(second, Reading(kData)));
  EXPECT_TRUE(Differs(run, "b")) << "one of two is no majority";
  EXPECT_TRUE(run.effects().view_changed);
  EXPECT_THAT(run.core().View(second).message(), HasSubstr("other data"));
  const auto third = run.Join("c");
  EXPECT_FALSE(Differs(run, "c")) << "it has not told";
  ASSERT_OK(run.Heartbeat(third, Reading(kData)));
  EXPECT_TRUE(Differs(run, "a"));
  EXPECT_FALSE(Differs(run, "b"));
  EXPECT_FALSE(Differs(run, "c"));
  EXPECT_TRUE(IsAsked(run, second));
  EXPECT_FALSE(IsAsked(run, first));
  EXPECT_EQ(run.core().View(second).message(), "");
  EXPECT_EQ(run.effects().flags->data_digest, kData);
  EXPECT_EQ(run.CountEvents("data_accepted"), 1);
  EXPECT_EQ(run.CountEvents("data_differs"), 2) << "of b, and then of a";
  ASSERT_OK(run.Leave(first));
  EXPECT_FALSE(Differs(run, "a")) << "it is gone";
}

// Otherwise, of two islands, the one that restarted last could never determine
// the data.
TEST(CoordinatorReports, AnIslandThatIsBackFindsItsDataAgain) {
  CoordinatorDriver run(Validating());
  const auto island = run.Join("a");
  ASSERT_OK(run.Heartbeat(island, Reading(kData)));
  const auto foreign = run.Join("b");
  ASSERT_OK(run.Heartbeat(foreign, Reading(kOtherData)));
  ASSERT_OK(run.Leave(island));
  ASSERT_OK(run.Heartbeat(foreign, Reading(kOtherData)));
  ASSERT_OK(run.Heartbeat(run.Join("a"), Reading(kData)));
  EXPECT_FALSE(Differs(run, "a"));
  EXPECT_TRUE(Differs(run, "b"));
}

TEST(CoordinatorReports, AnOperatorOverrulesTheMajority) {
  CoordinatorDriver run(Validating());
  const auto first = run.Join("a");
  ASSERT_OK(run.Heartbeat(first, Reading(kOtherData)));
  const auto second = run.Join("b");
  EXPECT_THAT(run.core().AcceptData("b", run.effects()),
              IsFailedPrecondition("has not opened its data yet"));
  EXPECT_THAT(run.core().AcceptData("x", run.effects()), IsNotFound());
  EXPECT_EQ(run.CountEvents("data_accepted"), 0);
  ASSERT_OK(run.Heartbeat(second, Reading(kData)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(run.core().AcceptData("b", run.effects()));
  }
  EXPECT_EQ(run.CountEvents("data_accepted"), 1);
  EXPECT_TRUE(run.effects().flags->data_accepted);
  EXPECT_TRUE(Differs(run, "a"));
  EXPECT_FALSE(Differs(run, "b"));
  const auto third = run.Join("c");
  ASSERT_OK(run.Heartbeat(third, Reading(kOtherData)));
  EXPECT_TRUE(Differs(run, "c")) << "most islands say otherwise in vain";
  EXPECT_TRUE(IsAsked(run, second));
  EXPECT_OK(run.core().AcceptData("c", run.effects()));
  EXPECT_TRUE(Differs(run, "b"));
  EXPECT_FALSE(Differs(run, "a"));
}

// The islands' data stay the run's, but the islands can no longer change them.
TEST(CoordinatorReports, AnOperatorMayConfirmTheRunsData) {
  CoordinatorDriver run(Validating());
  ASSERT_OK(run.Heartbeat(run.Join("a"), Reading(kData)));
  ASSERT_OK(run.core().AcceptData("a", run.effects()));
  for (const char* island : {"b", "c", "d"}) {
    ASSERT_OK(run.Heartbeat(run.Join(island), Reading(kOtherData)));
  }
  EXPECT_FALSE(Differs(run, "a"));
  EXPECT_EQ(run.CountEvents("data_differs"), 3);
}

TEST(CoordinatorReports, NoIslandMeasuresUnlessTheRunWantsIt) {
  CoordinatorDriver run({});
  const auto island = run.Join("a");
  CommitUntil(run, island, 1);
  EXPECT_FALSE(run.core().View(island).has_validation());
  ASSERT_OK(run.Heartbeat(island, Measured(1, 2.5)));
  EXPECT_FALSE(run.core().validation().has_value());
}

TEST(CoordinatorReports, AMeasurementIsRecordedOnce) {
  CoordinatorDriver run(Validating());
  const auto island = run.Join("a");
  CommitUntil(run, island, 2);
  run.Advance(absl::Seconds(7));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(run.Heartbeat(island, Measured(2, 2.5)));
  }
  ASSERT_THAT(run.effects().validations, SizeIs(1));
  const v1::ValidationPoint& point = run.effects().validations[0];
  EXPECT_EQ(point.validation().version(), 2);
  EXPECT_EQ(point.validation().loss(), 2.5);
  EXPECT_EQ(point.island_id(), "a");
  EXPECT_EQ(ToTime(point.time()), run.now());
  EXPECT_EQ(run.CountEvents("validated"), 1);
  EXPECT_EQ(run.core().validation()->validation().loss(), 2.5);
  // An older one after a newer one is ignored.
  CommitUntil(run, island, 4);
  ASSERT_OK(run.Heartbeat(island, Measured(4, 2.25)));
  ASSERT_OK(run.Heartbeat(island, Measured(3, 1)));
  EXPECT_EQ(run.core().validation()->validation().loss(), 2.25);
}

TEST(CoordinatorReports, AnIslandThatLeavesReportsItsLastMeasurement) {
  CoordinatorDriver run(Validating());
  const auto island = run.Join("a");
  CommitUntil(run, island, 2);
  v1::LeaveRequest request;
  *request.mutable_identity() = island;
  *request.mutable_progress() = Measured(2, 2.5);
  ASSERT_OK(run.core().Leave(request, run.now(), run.effects()));
  EXPECT_THAT(run.effects().validations, SizeIs(1));
}

TEST(CoordinatorReports, ImpossibleMeasurementsAreIgnored) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CoordinatorDriver run(Validating());
  const auto island = run.Join("a");
  CommitUntil(run, island, 2);
  ASSERT_OK(run.Heartbeat(island, Reading(kData)));
  const auto other = run.Join("b");
  EXPECT_OK(run.Heartbeat(other, Measured(2, 2.5))) << "nobody has asked b";
  for (const double loss : {-1.0, 0.0, 1e6, kInfinity, std::nan("")}) {
    EXPECT_OK(run.Heartbeat(island, Measured(2, loss)));
  }
  for (const uint64_t version : {0, 3, 1000}) {
    EXPECT_OK(run.Heartbeat(island, Measured(version, 2.5)));
  }
  v1::IslandProgress claim = Measured(2, 2.5);
  for (const double seconds : {-1.0, kInfinity, std::nan("")}) {
    claim.mutable_validation()->set_seconds(seconds);
    EXPECT_OK(run.Heartbeat(island, claim));
  }
  claim = Measured(2, 2.5);
  for (const uint64_t tokens :
       {uint64_t{0}, std::numeric_limits<uint64_t>::max()}) {
    claim.mutable_validation()->set_tokens(tokens);
    EXPECT_OK(run.Heartbeat(island, claim));
  }
  EXPECT_THAT(run.effects().validations, SizeIs(0));
  EXPECT_OK(run.Heartbeat(island, Measured(2, 2.5)));
  EXPECT_THAT(run.effects().validations, SizeIs(1));
}

TEST(CoordinatorReports, DataAreNamedBy16Bytes) {
  CoordinatorDriver run(Validating());
  const auto island = run.Join("a");
  EXPECT_OK(run.Heartbeat(island, Reading("short")));
  EXPECT_OK(run.Heartbeat(island, Reading(kData)));
  EXPECT_EQ(run.effects().flags->data_digest, kData);
  EXPECT_EQ(run.CountEvents("data_differs"), 0);
}

TEST(CoordinatorReports, EveryVersionOfTheModelIsAPointOfTraining) {
  CoordinatorDriver run({.fragments = 2});
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, run.TryJoin("a", 1));
  const v1::IslandIdentity& island = joined.identity();
  v1::IslandProgress progress;
  progress.set_ready(true);
  const auto train = [&](uint64_t tokens, double loss) {
    progress.set_tokens(progress.tokens() + tokens);
    progress.set_loss(loss);
    progress.set_bytes_up(progress.bytes_up() + 10);
    ASSERT_OK(run.Heartbeat(island, progress));
  };
  // The first report only begins the sums.
  train(1000, 9);
  train(100, 4);
  train(300, 2);
  ASSERT_OK(run.Contribute(Contribution(island, 0, 0)));
  run.Tick();
  run.Commit();
  EXPECT_THAT(run.effects().training, SizeIs(0)) << "fragment 1 is behind";
  ASSERT_OK(run.Contribute(Contribution(island, 0, 1)));
  run.Tick();
  run.Advance(absl::Seconds(3));
  run.Commit();
  ASSERT_THAT(run.effects().training, SizeIs(1));
  const v1::TrainingPoint& point = run.effects().training[0];
  EXPECT_EQ(point.version(), 1);
  EXPECT_DOUBLE_EQ(point.loss(), 2.5);
  EXPECT_EQ(point.bytes_up(), 20);
  EXPECT_EQ(point.participation().merged(), 2);
  EXPECT_EQ(ToTime(point.time()), run.now());
}

TEST(CoordinatorReports, ARestartedCoordinatorContinuesItsHistory) {
  std::vector<Coordinator::CommittedFragment> heads(1);
  heads[0].head.set_version(4);
  heads[0].parameter_norm = 1e9;
  CoordinatorHistory history;
  history.flags.data_digest = kData;
  history.flags.data_accepted = true;
  history.training.emplace().set_version(4);
  history.validation.emplace();
  *history.validation->mutable_validation() = Measured(4, 3).validation();
  CoordinatorDriver run(Validating(), heads, {}, history);
  const auto foreign = run.Join("a");
  const auto island = run.Join("b");
  ASSERT_OK(run.Heartbeat(foreign, Reading(kOtherData)));
  EXPECT_EQ(run.CountEvents("data_differs"), 1)
      << "though it is most of those that have told";
  ASSERT_OK(run.Heartbeat(island, Measured(4, 2)));
  EXPECT_EQ(run.core().validation()->validation().loss(), 3);
  EXPECT_THAT(run.effects().validations, SizeIs(0));
}

}  // namespace
}  // namespace causeway
