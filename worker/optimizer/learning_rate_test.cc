// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/learning_rate.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "proto/run_config.pb.h"

namespace causeway {
namespace {

v1::TrainingConfig Config() {
  v1::TrainingConfig config;
  config.set_total_steps(110);
  config.set_warmup_steps(10);
  config.set_learning_rate(2);
  config.set_min_learning_rate_ratio(0.25);
  return config;
}

TEST(LearningRateTest, WarmsUpInEqualStepsToThePeak) {
  const v1::TrainingConfig config = Config();
  for (uint64_t step = 0; step < 10; ++step) {
    EXPECT_DOUBLE_EQ(LearningRate(config, step),
                     0.2 * (static_cast<double>(step) + 1));
  }
  EXPECT_DOUBLE_EQ(LearningRate(config, 10), 2);
}

TEST(LearningRateTest, CosineFallsToTheMinimumAndStaysThere) {
  const v1::TrainingConfig config = Config();
  // The cosines of 60, 90 and 120 degrees are 1/2, 0 and -1/2; so these are
  // 3/4, 1/2 and 1/4 of the way from 0.5 to 2.
  EXPECT_NEAR(LearningRate(config, 60), 1.25, 1e-12);
  v1::TrainingConfig thirds = config;
  thirds.set_total_steps(10 + 99);
  EXPECT_NEAR(LearningRate(thirds, 10 + 33), 0.5 + 1.5 * 0.75, 1e-12);
  EXPECT_NEAR(LearningRate(thirds, 10 + 66), 0.5 + 1.5 * 0.25, 1e-12);
  for (uint64_t step = 10; step < 110; ++step) {
    EXPECT_GT(LearningRate(config, step), LearningRate(config, step + 1));
  }
  EXPECT_DOUBLE_EQ(LearningRate(config, 110), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(config, 1000000), 0.5);
}

TEST(LearningRateTest, ConstantStaysAtThePeak) {
  v1::TrainingConfig config = Config();
  config.set_schedule(v1::TrainingConfig::CONSTANT);
  EXPECT_DOUBLE_EQ(LearningRate(config, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRate(config, 10), 2);
  EXPECT_DOUBLE_EQ(LearningRate(config, 5000), 2);
}

TEST(LearningRateTest, DegenerateSchedulesAreFinite) {
  v1::TrainingConfig config = Config();
  config.set_warmup_steps(0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 0), 2);
  // The whole run is warm-up.
  config.set_warmup_steps(110);
  EXPECT_DOUBLE_EQ(LearningRate(config, 109), 2);
  EXPECT_DOUBLE_EQ(LearningRate(config, 110), 0.5);
}

}  // namespace
}  // namespace causeway
