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

class PredictRunTest : public testing::Test {
 protected:
  PredictRunTest() {
    sync_.set_inner_steps_per_round(100);
    sync_.set_uplink_format(v1::BF16);
    sync_.set_downlink_format(v1::BF16);
  }

  RunPrediction Predicted() const {
    absl::StatusOr<RunPrediction> prediction = PredictRun(assumptions_);
    EXPECT_OK(prediction);
    return *std::move(prediction);
  }
  double Utilization() const { return Predicted().simulated.utilization; }
  std::string Refusal() const {
    return std::string(PredictRun(assumptions_).status().message());
  }

  // 4 layers of 250 values, BF16 both ways: 16 000 bits each way per round.
  RunAssumptions assumptions_{
      .layout = *MakeUniformLayout(1000, 0, 4),
      .islands = {{.step_seconds = 0.5, .link = {.up = 1600, .down = 800}}}};
  v1::SynchronizationConfig& sync_ =
      *assumptions_.config.mutable_synchronization();
};

TEST_F(PredictRunTest, DiLoCoIsTrainingThenTransfers) {
  // A period is 50 s of training, 10 s up, 20 s down.
  EXPECT_NEAR(Utilization(), 50.0 / 80, kExact);
  assumptions_.islands[0].round_trip_seconds = 1;
  assumptions_.merge_rate = 100;
  EXPECT_NEAR(Utilization(), 50.0 / 91, kExact);
}

TEST_F(PredictRunTest, UnlimitedBandwidthIsFullUtilization) {
  assumptions_.islands[0].link = {};
  EXPECT_NEAR(Utilization(), 1, kExact);
}

TEST_F(PredictRunTest, RoundsOfOneStepAreDataParallel) {
  sync_.set_inner_steps_per_round(1);
  const RunPrediction prediction = Predicted();
  EXPECT_NEAR(prediction.simulated.utilization, 0.5 / 30.5, kExact);
  EXPECT_NEAR(prediction.data_parallel_ratio, 1, kExact);
}

TEST_F(PredictRunTest, FragmentsAreSpreadOverTheRound) {
  sync_.set_fragments(5);
  assumptions_.layout = *MakeUniformLayout(1000, 200, 4);
  // Each fifth of the model takes 2 s up and 4 s down.
  sync_.set_overlap_steps(11);
  EXPECT_NEAR(Utilization(), 50.0 / 52.5, kExact);
  sync_.set_overlap_steps(12);
  EXPECT_NEAR(Utilization(), 1, kExact);
  // max_overlap_steps helps as much as overlap_steps.
  sync_.set_overlap_steps(2);
  sync_.set_max_overlap_steps(10);
  EXPECT_NEAR(Utilization(), 1, kExact);
}

// The first fifth goes up before any download, the others during downloads.
TEST_F(PredictRunTest, FragmentsThatAreWaitedForShareTheWait) {
  assumptions_.layout = *MakeUniformLayout(1000, 200, 4);
  EXPECT_NEAR(Utilization(), 50.0 / 80, kExact);
  sync_.set_fragments(5);
  EXPECT_NEAR(Utilization(), 50.0 / 72, kExact);
}

// Fragments move the same bytes in a round, but only a fifth of them at once.
TEST_F(PredictRunTest, FragmentsLowerThePeak) {
  assumptions_.islands[0].link = {};
  assumptions_.layout = *MakeUniformLayout(1000, 200, 4);
  const RunPrediction whole = Predicted();
  sync_.set_fragments(5);
  sync_.set_overlap_steps(1);
  const RunPrediction fifths = Predicted();
  EXPECT_NEAR(fifths.simulated.islands[0].traffic.up.mean, 16000.0 / 50,
              kExact);
  EXPECT_NEAR(whole.simulated.islands[0].traffic.up.mean, 16000.0 / 50, kExact);
  EXPECT_NEAR(whole.simulated.islands[0].traffic.up.peak, 16000, kExact);
  EXPECT_NEAR(fifths.simulated.islands[0].traffic.up.peak, 3200, kExact);
}

TEST_F(PredictRunTest, CountsBytesAsTheFormatsDo) {
  sync_.set_uplink_format(v1::E3M0);
  sync_.set_block_size(256);
  sync_.set_entropy_coding(false);
  const RunPrediction prediction = Predicted();
  // Values take 4 bits, and each 256 of them a scale of 16 bits.
  EXPECT_NEAR(prediction.up_bytes_per_round, 1000 * (4 + 16.0 / 256) / 8,
              kExact);
  EXPECT_NEAR(prediction.down_bytes_per_round, 2000, kExact);
  EXPECT_NEAR(prediction.data_parallel_ratio, 100 * 32 / (4 + 16.0 / 256 + 16),
              kExact);
  // Entropy coding shortens the codes, not the scales.
  sync_.set_entropy_coding(true);
  EXPECT_NEAR(Predicted().up_bytes_per_round, 1000 * 3.54 / 8, kExact);
  sync_.set_block_size(64);
  EXPECT_NEAR(Predicted().up_bytes_per_round,
              1000 * (3.54 + 3 * 16.0 / 256) / 8, kExact);
  assumptions_.uplink_bits = 3;
  EXPECT_NEAR(Predicted().up_bytes_per_round, 375, kExact);
}

TEST_F(PredictRunTest, AddsUpMemory) {
  assumptions_.islands.push_back(assumptions_.islands[0]);
  const RunPrediction prediction = Predicted();
  // 16 bytes for the trainer, 4 for the anchor, 8 for the change and the next
  // anchor, 2 + 2 for encodings.
  EXPECT_NEAR(prediction.island_bytes, 1000 * (16 + 4 + 8 + 4), kExact);
  // Two contributions; parameters, momentum and residual, before and after the
  // outer step; and the update.
  EXPECT_NEAR(prediction.coordinator_bytes, 1000 * (2 * 2 + 24 + 2), kExact);
  EXPECT_NEAR(prediction.coordinator_most_bytes, prediction.coordinator_bytes,
              kExact);
  // The coordinator keeps decompressed codes of four bits.
  sync_.set_uplink_format(v1::INT4);
  sync_.set_entropy_coding(true);
  assumptions_.uplink_bits = 3;
  EXPECT_NEAR(Predicted().coordinator_bytes,
              1000 * 2 * (3 + 4) / 8 + 1000 * (24 + 2), kExact);
  sync_.set_uplink_format(v1::BF16);
  sync_.set_entropy_coding(false);
  assumptions_.uplink_bits = 0;
  // The disk holds two snapshots and the new one; for each kept one, records of
  // six times its size and the merge that exceeds it; eight updates and the new
  // one.
  EXPECT_NEAR(prediction.coordinator_disk_bytes,
              1000 * (3 * 12 + 2 * (6 * 12 + 2 * 2) + 9 * 2), kExact);
  assumptions_.config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  sync_.set_downlink_format(v1::FP32);
  EXPECT_NEAR(Predicted().coordinator_bytes, 1000 * (2 * 2 + 8 + 4), kExact);
  sync_.set_downlink_format(v1::BF16);
  // ACCO trainers hold two more vectors.
  assumptions_.config.mutable_training()->set_inner_algorithm(
      v1::TrainingConfig::ACCO);
  EXPECT_NEAR(Predicted().island_bytes - prediction.island_bytes, 1000 * 8,
              kExact);
  assumptions_.config.mutable_training()->clear_inner_algorithm();
  sync_.set_error_feedback(1);
  EXPECT_NEAR(Predicted().island_bytes - prediction.island_bytes, 1000 * 4,
              kExact);
}

TEST_F(PredictRunTest, CountsSnapshots) {
  // Snapshots take 12 bytes a value, and come once the records, of 2 bytes,
  // have six times as many.
  EXPECT_NEAR(Predicted().snapshot_bytes_per_round, 12000.0 / 36, kExact);
  // The outer steps of a round take 10 of the 60 seconds that a start repeats.
  assumptions_.merge_rate = 100;
  EXPECT_NEAR(Predicted().snapshot_bytes_per_round, 12000.0 / 6, kExact);
  assumptions_.merge_rate = 10;
  EXPECT_NEAR(Predicted().snapshot_bytes_per_round, 12000, kExact);
  assumptions_.config.mutable_storage()->set_replay_seconds(300);
  EXPECT_NEAR(Predicted().snapshot_bytes_per_round, 12000.0 / 3, kExact);
}

TEST_F(PredictRunTest, CountsTheMemoryOfEveryExchangeUnderWay) {
  sync_.set_fragments(5);
  assumptions_.layout = *MakeUniformLayout(1000, 200, 4);
  // A fifth takes 6 s, and one leaves every 10 s.
  sync_.set_overlap_steps(12);
  const RunPrediction prediction = Predicted();
  const double one = prediction.island_bytes;
  EXPECT_NEAR(one, 1000 * (16 + 4) + 200 * (8 + 4), kExact);
  EXPECT_NEAR(prediction.coordinator_bytes,
              200 * 2 + (1000 + 200) * 12 + 200 * 2, kExact);
  // At the last step all five go up, and two outer steps are made at once.
  EXPECT_NEAR(prediction.coordinator_most_bytes,
              1000 * 2 + (1000 + 400) * 12 + 400 * 2, kExact);
  // A longer round trip makes it 16 s, so that two are under way at once.
  assumptions_.islands[0].round_trip_seconds = 10;
  sync_.set_overlap_steps(40);
  EXPECT_NEAR(Predicted().island_bytes - one, 200 * (8 + 4), kExact);
}

// With a floor, an island with a slow uplink sends as many bits as arrive in
// time, and no island waits.
TEST_F(PredictRunTest, PlansBitsForSlowUplinks) {
  sync_.set_uplink_format(v1::ECQ);
  sync_.set_downlink_format(v1::ECQ);
  sync_.set_ecq_bits(4);
  sync_.set_overlap_steps(20);
  // A step takes 0.5 s, a contribution 2 s and, on the slow link, 20 s.
  assumptions_.islands = {{.step_seconds = 0.5, .link = {.up = 2000}},
                          {.step_seconds = 0.5, .link = {.up = 200}}};
  EXPECT_LT(Utilization(), 0.9);
  sync_.set_uplink_bits_floor(0.5);
  RunPrediction prediction = Predicted();
  EXPECT_NEAR(prediction.simulated.utilization, 1, kExact);
  // 10 s carry 2 bits a value.
  EXPECT_THAT(prediction.uplink_bits, testing::ElementsAre(4, 1.8));
  EXPECT_NEAR(prediction.up_bytes_per_round, 1000 * (4 + 1.8) / 2 / 8, kExact);
  EXPECT_NEAR(prediction.simulated.islands[1].traffic.up.mean, 1800.0 / 50,
              kExact);
  // Round trip and merge take their part of the time.
  assumptions_.islands[0].round_trip_seconds = 3;
  assumptions_.merge_rate = 500;
  prediction = Predicted();
  EXPECT_NEAR(prediction.simulated.utilization, 1, kExact);
  EXPECT_THAT(prediction.uplink_bits, testing::ElementsAre(4, 1.17));
  sync_.set_uplink_bits_floor(2.5);
  prediction = Predicted();
  EXPECT_LT(prediction.simulated.utilization, 0.99);
  EXPECT_THAT(prediction.uplink_bits, testing::ElementsAre(4, 2.5));
}

TEST_F(PredictRunTest, RefusesWhatARunWouldRefuse) {
  assumptions_.islands[0].link.up = 0;
  EXPECT_THAT(Refusal(), HasSubstr("the rate of an uplink is 0"));
  assumptions_.islands[0].link.up = 1600;
  sync_.set_fragments(6);
  EXPECT_THAT(Refusal(), HasSubstr("fragments"));
  sync_.set_fragments(1);
  sync_.set_overlap_steps(60);
  sync_.set_max_overlap_steps(40);
  EXPECT_THAT(Refusal(), HasSubstr("overlap_steps + max_overlap_steps is 100"));
  sync_.set_overlap_steps(0);
  sync_.set_uplink_format(v1::ECQ);
  EXPECT_THAT(Refusal(), HasSubstr("--uplink_bits"));
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
