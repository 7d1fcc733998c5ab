// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training_progress.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/shared_outer_loop.h"

namespace causeway {
namespace {

// A client that reaches nobody and has moved some bytes.
class FakeClient : public CoordinatorClient {
 public:
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest&) override {
    return absl::UnavailableError("nobody");
  }
  std::unique_ptr<ControlStream> OpenSession() override { return nullptr; }
  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader, StreamedEncoding&,
      absl::FunctionRef<void()>) override {
    return absl::UnavailableError("nobody");
  }
  std::unique_ptr<UpdateStream> FetchUpdate(const v1::FetchUpdateRequest&,
                                            uint64_t,
                                            const UpdateDownload&) override {
    return nullptr;
  }
  absl::Status FetchParameters(const v1::FetchParametersRequest&, uint64_t,
                               ParametersDownload&) override {
    return absl::UnavailableError("nobody");
  }
  absl::Status Leave(const v1::LeaveRequest&) override {
    return absl::UnavailableError("nobody");
  }
  void Shutdown() override {}
  uint64_t bytes_up() const override { return 7; }
  uint64_t bytes_down() const override { return 9; }
  void ReportLinks(v1::IslandProgress& progress) const override {
    progress.set_round_trip_seconds(0.25);
  }
};

class TrainingProgressTest : public testing::Test {
 protected:
  absl::Time now_ = absl::UnixEpoch();
  FakeClient client_;
  SharedOuterLoop loop_{OuterLoop::Options(), [this] { return now_; }};
  TrainingProgress progress_{&client_, &loop_, [this] { return now_; },
                             absl::Minutes(1)};
};

TEST_F(TrainingProgressTest, WhatRanksHaveDoneAddsUp) {
  const InnerStepResult step = {.tokens = 400,
                                .rank_micro_batches = {3, 1},
                                .communication = absl::Seconds(2),
                                .exposed_communication = absl::Seconds(0.5)};
  progress_.Record(1, step, absl::Seconds(1));
  progress_.Record(2, step, absl::Seconds(1));
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.run_step(), 2);
  EXPECT_EQ(report.tokens(), 800);
  ASSERT_EQ(report.ranks_size(), 2);
  EXPECT_EQ(report.ranks(0).micro_batches(), 6);
  EXPECT_EQ(report.ranks(0).tokens(), 600);
  EXPECT_EQ(report.ranks(1).micro_batches(), 2);
  EXPECT_EQ(report.ranks(1).tokens(), 200);
  EXPECT_EQ(report.communication_seconds(), 4);
  EXPECT_EQ(report.exposed_communication_seconds(), 1);
}

TEST_F(TrainingProgressTest, TheLossIsTheMeanSinceTheLastReport) {
  progress_.Record(1, {.loss = 5}, absl::Seconds(1));
  progress_.Record(2, {.loss = 3}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 4);
  progress_.Record(3, {.loss = 1}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 1);
  EXPECT_EQ(progress_.Report().loss(), 1) << "no step since";
}

TEST_F(TrainingProgressTest, TheRateIsThatOfTheLastSeconds) {
  // The first step is a warm-up.
  progress_.Record(1, {.tokens = 1000}, absl::Seconds(9));
  for (const uint64_t tokens : {100, 300}) {
    now_ += absl::Seconds(1);
    progress_.Record(2, {.tokens = tokens}, absl::Seconds(0.5));
    now_ += absl::Seconds(1);
    progress_.Record(3, {.tokens = tokens}, absl::Seconds(1));
    const v1::IslandProgress report = progress_.Report();
    EXPECT_EQ(report.tokens_per_second(), tokens);
    EXPECT_EQ(report.step_seconds(), 0.75);
  }
}

TEST_F(TrainingProgressTest, TroubleIsReportedWhileItLasts) {
  InnerStepResult slow;
  slow.trouble.set_kind(v1::RankTrouble::SLOW_RANK);
  slow.trouble.set_rank(1);
  progress_.Record(1, slow, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().rank_trouble().rank(), 1);
  progress_.Record(2, {}, absl::Seconds(1));
  EXPECT_FALSE(progress_.Report().has_rank_trouble());
}

TEST_F(TrainingProgressTest, ReportsWhatTheClientKnows) {
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.bytes_up(), 7);
  EXPECT_EQ(report.bytes_down(), 9);
  EXPECT_EQ(report.round_trip_seconds(), 0.25);
}

}  // namespace
}  // namespace causeway
