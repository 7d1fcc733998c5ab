// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/run_plan.h"

#include <string>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-9;

// Returns 4 layers of 250 values, BF16 both ways: 16 000 bits each way per
// round.
RunAssumptions Assumptions() {
  RunAssumptions assumptions{
      .layout = *MakeUniformLayout(1000, 0, 4),
      .islands = {{.step_seconds = 0.5, .link = {.up = 1600, .down = 800}}}};
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_inner_steps_per_round(100);
  sync.set_uplink_format(v1::BF16);
  sync.set_downlink_format(v1::BF16);
  return assumptions;
}

RunPrediction Predicted(const RunAssumptions& assumptions) {
  absl::StatusOr<RunPrediction> prediction = PredictRun(assumptions);
  EXPECT_OK(prediction);
  return *std::move(prediction);
}

std::string Refusal(const RunAssumptions& assumptions) {
  return std::string(PredictRun(assumptions).status().message());
}

TEST(PredictRunTest, DiLoCoIsTrainingThenTransfers) {
  RunAssumptions assumptions = Assumptions();
  // A period is 50 s of training, 10 s up, 20 s down.
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 50.0 / 80, kExact);
  assumptions.islands[0].round_trip_seconds = 1;
  assumptions.merge_rate = 100;
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 50.0 / 91, kExact);
}

TEST(PredictRunTest, UnlimitedBandwidthIsFullUtilization) {
  RunAssumptions assumptions = Assumptions();
  assumptions.islands[0].link = {};
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 1, kExact);
}

TEST(PredictRunTest, RoundsOfOneStepAreDataParallel) {
  RunAssumptions assumptions = Assumptions();
  assumptions.config.mutable_synchronization()->set_inner_steps_per_round(1);
  const RunPrediction prediction = Predicted(assumptions);
  EXPECT_NEAR(prediction.simulated.utilization, 0.5 / 30.5, kExact);
  EXPECT_NEAR(prediction.data_parallel_ratio, 1, kExact);
}

TEST(PredictRunTest, FragmentsAreSpreadOverTheRound) {
  RunAssumptions assumptions = Assumptions();
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_fragments(5);
  assumptions.layout = *MakeUniformLayout(1000, 200, 4);
  // Each fifth of the model takes 2 s up and 4 s down.
  sync.set_overlap_steps(11);
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 50.0 / 52.5,
              kExact);
  sync.set_overlap_steps(12);
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 1, kExact);
  // max_overlap_steps helps as much as overlap_steps.
  sync.set_overlap_steps(2);
  sync.set_max_overlap_steps(10);
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 1, kExact);
}

// The first fifth goes up before anything comes down, and the others meanwhile.
TEST(PredictRunTest, FragmentsThatAreWaitedForShareTheWait) {
  RunAssumptions assumptions = Assumptions();
  assumptions.layout = *MakeUniformLayout(1000, 200, 4);
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 50.0 / 80, kExact);
  assumptions.config.mutable_synchronization()->set_fragments(5);
  EXPECT_NEAR(Predicted(assumptions).simulated.utilization, 50.0 / 72, kExact);
}

// Fragments move the same bytes in a round, but only a fifth of them at once.
TEST(PredictRunTest, FragmentsLowerThePeak) {
  RunAssumptions assumptions = Assumptions();
  assumptions.islands[0].link = {};
  assumptions.layout = *MakeUniformLayout(1000, 200, 4);
  const RunPrediction whole = Predicted(assumptions);
  assumptions.config.mutable_synchronization()->set_fragments(5);
  assumptions.config.mutable_synchronization()->set_overlap_steps(1);
  const RunPrediction fifths = Predicted(assumptions);
  EXPECT_NEAR(fifths.simulated.islands[0].traffic.up.mean, 16000.0 / 50,
              kExact);
  EXPECT_NEAR(whole.simulated.islands[0].traffic.up.mean, 16000.0 / 50, kExact);
  EXPECT_NEAR(whole.simulated.islands[0].traffic.up.peak, 16000, kExact);
  EXPECT_NEAR(fifths.simulated.islands[0].traffic.up.peak, 3200, kExact);
}

TEST(PredictRunTest, CountsBytesAsTheFormatsDo) {
  RunAssumptions assumptions = Assumptions();
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_uplink_format(v1::E3M0);
  sync.set_block_size(256);
  sync.set_entropy_coding(false);
  const RunPrediction prediction = Predicted(assumptions);
  // Values take 4 bits, and each 256 of them a scale of 16 bits.
  EXPECT_NEAR(prediction.up_bytes_per_round, 1000 * (4 + 16.0 / 256) / 8,
              kExact);
  EXPECT_NEAR(prediction.down_bytes_per_round, 2000, kExact);
  EXPECT_NEAR(prediction.data_parallel_ratio, 100 * 32 / (4 + 16.0 / 256 + 16),
              kExact);
  // Entropy coding shortens the codes, not the scales.
  sync.set_entropy_coding(true);
  EXPECT_NEAR(Predicted(assumptions).up_bytes_per_round, 1000 * 3.54 / 8,
              kExact);
  sync.set_block_size(64);
  EXPECT_NEAR(Predicted(assumptions).up_bytes_per_round,
              1000 * (3.54 + 3 * 16.0 / 256) / 8, kExact);
  assumptions.uplink_bits = 3;
  EXPECT_NEAR(Predicted(assumptions).up_bytes_per_round, 375, kExact);
}

TEST(PredictRunTest, AddsUpMemory) {
  RunAssumptions assumptions = Assumptions();
  assumptions.islands.push_back(assumptions.islands[0]);
  const RunPrediction prediction = Predicted(assumptions);
  // 16 bytes for the trainer, 4 for the anchor, 8 for the change and the next
  // anchor, 2 + 2 for encodings.
  EXPECT_NEAR(prediction.island_bytes, 1000 * (16 + 4 + 8 + 4), kExact);
  // Two contributions; parameters, momentum and residual, before and after the
  // outer step; and the update.
  EXPECT_NEAR(prediction.coordinator_bytes, 1000 * (2 * 2 + 24 + 2), kExact);
  // Two snapshots and the new one; since each that is kept, records of six
  // times its size and of the merge that exceeds it; eight updates and the new
  // one.
  EXPECT_NEAR(prediction.coordinator_disk_bytes,
              1000 * (3 * 12 + 2 * (6 * 12 + 2 * 2) + 9 * 2), kExact);
  assumptions.config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  assumptions.config.mutable_synchronization()->set_downlink_format(v1::FP32);
  EXPECT_NEAR(Predicted(assumptions).coordinator_bytes, 1000 * (2 * 2 + 8 + 4),
              kExact);
  // Trainers that communicate meanwhile have two more vectors.
  assumptions = Assumptions();
  assumptions.config.mutable_training()->set_inner_algorithm(
      v1::TrainingConfig::ACCO);
  EXPECT_NEAR(Predicted(assumptions).island_bytes - prediction.island_bytes,
              1000 * 8, kExact);
  assumptions = Assumptions();
  assumptions.config.mutable_synchronization()->set_error_feedback(1);
  EXPECT_NEAR(Predicted(assumptions).island_bytes - prediction.island_bytes,
              1000 * 4, kExact);
}

// Fragments that leave while others are under way take memory for each.
TEST(PredictRunTest, CountsTheMemoryOfEveryExchangeUnderWay) {
  RunAssumptions assumptions = Assumptions();
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_fragments(5);
  assumptions.layout = *MakeUniformLayout(1000, 200, 4);
  // A fifth takes 6 s, and one leaves every 10 s.
  sync.set_overlap_steps(12);
  const double one = Predicted(assumptions).island_bytes;
  EXPECT_NEAR(one, 1000 * (16 + 4) + 200 * (8 + 4), kExact);
  // A longer way makes it 16 s, so that two are under way at once.
  assumptions.islands[0].round_trip_seconds = 10;
  sync.set_overlap_steps(40);
  EXPECT_NEAR(Predicted(assumptions).island_bytes - one, 200 * (8 + 4), kExact);
}

TEST(PredictRunTest, RefusesWhatARunWouldRefuse) {
  RunAssumptions assumptions = Assumptions();
  assumptions.islands[0].link.up = 0;
  EXPECT_THAT(Refusal(assumptions), HasSubstr("the rate of an uplink is 0"));

  assumptions = Assumptions();
  assumptions.config.mutable_synchronization()->set_fragments(6);
  EXPECT_THAT(Refusal(assumptions), HasSubstr("fragments"));

  assumptions = Assumptions();
  assumptions.config.mutable_synchronization()->set_overlap_steps(60);
  assumptions.config.mutable_synchronization()->set_max_overlap_steps(40);
  EXPECT_THAT(Refusal(assumptions),
              HasSubstr("overlap_steps + max_overlap_steps is 100"));

  assumptions = Assumptions();
  assumptions.config.mutable_synchronization()->set_uplink_format(v1::ECQ);
  EXPECT_THAT(Refusal(assumptions), HasSubstr("--uplink_bits"));
}

TEST(MakeUniformLayoutTest, AddsUp) {
  const absl::StatusOr<ModelLayout> layout = MakeUniformLayout(1003, 100, 4);
  ASSERT_OK(layout);
  EXPECT_EQ(layout->size, 1003);
  ASSERT_EQ(layout->tensors.size(), 5);
  EXPECT_EQ(layout->tensors[0].size, 226);
  EXPECT_EQ(layout->tensors[3].size, 225);
  EXPECT_EQ(layout->tensors[4].block, -1);
  EXPECT_EQ(layout->tensors[4].offset, 903);
  EXPECT_FALSE(MakeUniformLayout(100, 97, 4).ok());
  EXPECT_FALSE(MakeUniformLayout(100, 101, 4).ok());
  EXPECT_FALSE(MakeUniformLayout(100, 0, 0).ok());
}

}  // namespace
}  // namespace causeway
