// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests an island's restarts with a real coordinator over gRPC.
#include "worker/island_runner.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/edge/testing/served_engine.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/testing/drifting_trainer.h"

namespace causeway {
namespace {

class IslandRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(R"pb(
      training { total_steps: 10000 }
      synchronization { inner_steps_per_round: 2 }
      membership { min_islands: 1 }
    )pb")));
    ASSERT_OK(driver_.Serve());
  }

  // Returns the options of islands whose trainers fail with `reason`.
  IslandRunner::Options Options(absl::Status reason) {
    return {.connect =
                [this] {
                  return NewGrpcCoordinatorClient(
                      {.address = driver_.address(), .now = SteadyWallClock()});
                },
            .island =
                [this, reason = std::move(reason)] {
                  Island::Options island{
                      .make_trainer = [this, reason](const v1::JoinResponse&,
                                                     std::vector<float> values)
                          -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
                        ++starts_;
                        RETURN_IF_ERROR(reason);
                        return std::make_unique<DriftingTrainer>(
                            std::move(values), before_step_);
                      },
                      .now = SteadyWallClock()};
                  island.join.set_island_id("east");
                  island.join.set_instance_id(++instances_);
                  return island;
                },
            .give_up =
                [this] {
                  ++given_up_;
                  return give_up_;
                },
            .restarts = 2};
  }

  ServedEngine driver_;
  int starts_ = 0;
  int given_up_ = 0;
  absl::Status give_up_;
  DriftingTrainer::BeforeStep before_step_;
  uint64_t instances_ = 0;
};

TEST_F(IslandRunnerTest, AnIslandThatAlwaysDivergesEndsAfterItsRestarts) {
  IslandRunner runner(Options(absl::OutOfRangeError("diverged")));
  EXPECT_THAT(runner.Run(), IsOutOfRange());
  EXPECT_EQ(starts_, 3);
  // No process continues from the checkpoint of an island that diverged.
  EXPECT_EQ(given_up_, 3);
  const v1::ListIslandsResponse islands = driver_.engine().ListIslands(true);
  ASSERT_EQ(islands.islands_size(), 1);
  EXPECT_EQ(islands.islands(0).incarnation(), 3);
  EXPECT_EQ(islands.islands(0).state(), v1::IslandStatus::DIVERGED);
  EXPECT_EQ(islands.islands(0).reason(), "diverged");
}

TEST_F(IslandRunnerTest, LongTrainingBetweenFailuresRenewsTheRestarts) {
  std::unique_ptr<IslandRunner> runner;
  int start = 0;
  uint64_t steps = 0;
  before_step_ = [&](uint64_t) -> absl::Status {
    if (std::exchange(start, starts_) != starts_) steps = 0;
    if (starts_ == 5) runner->RequestLeave("SIGTERM");
    return steps++ < 2 * IslandRunner::kSoundRounds
               ? absl::OkStatus()
               : absl::OutOfRangeError("diverged");
  };
  runner = std::make_unique<IslandRunner>(Options(absl::OkStatus()));
  EXPECT_THAT(runner->Run(), IsCancelled("SIGTERM"));
  EXPECT_EQ(starts_, 5) << "with two restarts in a row";
}

TEST_F(IslandRunnerTest, AVersionThatWasLostIsNoDivergence) {
  const absl::Status lost = absl::OutOfRangeError(
      "builds on version 7, which was lost with another coordinator");
  IslandRunner::Options options = Options(lost);
  options.restarts = 0;
  EXPECT_THAT(IslandRunner(options).Run(), IsOutOfRange("version 7"));
  const v1::ListIslandsResponse islands = driver_.engine().ListIslands(true);
  ASSERT_EQ(islands.islands_size(), 1);
  EXPECT_EQ(islands.islands(0).state(), v1::IslandStatus::LEFT);

  options.restarts = 2;
  // The island's checkpoint is removed, too. This also ends the test.
  options.give_up = [&] {
    return ++given_up_ < 5 ? absl::OkStatus() : absl::DataLossError("enough");
  };
  EXPECT_THAT(IslandRunner(options).Run(), IsDataLoss("enough"));
}

TEST_F(IslandRunnerTest, AnyOtherFailureIsTheEnd) {
  IslandRunner runner(Options(absl::DataLossError("bad sector")));
  EXPECT_THAT(runner.Run(), IsDataLoss());
  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(given_up_, 0);
}

TEST_F(IslandRunnerTest, ACheckpointThatCannotBeRemovedIsTheEnd) {
  give_up_ = absl::PermissionDeniedError("read-only");
  IslandRunner runner(Options(absl::OutOfRangeError("diverged")));
  EXPECT_THAT(runner.Run(), IsPermissionDenied());
  EXPECT_EQ(starts_, 1);
}

TEST_F(IslandRunnerTest, ALeaveBeforeTheStartPreventsIt) {
  for (const bool stop : {false, true}) {
    IslandRunner runner(Options(absl::OutOfRangeError("diverged")));
    stop ? runner.Stop() : runner.RequestLeave("SIGTERM");
    EXPECT_THAT(runner.Run(), IsCancelled("before the start"));
    EXPECT_EQ(starts_, 0);
    EXPECT_FALSE(runner.HasHandedIn());
  }
}

TEST_F(IslandRunnerTest, AnIslandThatLeavesBeforeItTrainsHandsNothingIn) {
  std::unique_ptr<IslandRunner> runner;
  IslandRunner::Options options = Options(absl::OkStatus());
  options.island = [&, island = std::move(options.island)] {
    Island::Options waits = island();
    waits.check_run = [&](const v1::JoinResponse&) {
      runner->RequestLeave("SIGTERM");
      return absl::OkStatus();
    };
    return waits;
  };
  runner = std::make_unique<IslandRunner>(std::move(options));
  EXPECT_THAT(runner->Run(), IsCancelled("SIGTERM"));
  EXPECT_FALSE(runner->HasHandedIn());
}

TEST_F(IslandRunnerTest, ARunningIslandLeavesOnRequest) {
  for (const bool stop : {false, true}) {
    std::unique_ptr<IslandRunner> runner;
    IslandRunner::Options options = Options(absl::OkStatus());
    before_step_ = [&](uint64_t step) {
      // The second island may begin later.
      if (step >= 3) stop ? runner->Stop() : runner->RequestLeave("SIGTERM");
      return absl::OkStatus();
    };
    runner = std::make_unique<IslandRunner>(std::move(options));
    EXPECT_THAT(runner->Run(), StatusIs(absl::StatusCode::kCancelled,
                                        stop ? "stopped" : "SIGTERM"));
    EXPECT_EQ(runner->HasHandedIn(), !stop);
  }
  EXPECT_EQ(starts_, 2) << "one for each";
}

}  // namespace
}  // namespace causeway
