// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_schedule.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

std::vector<float> LearningRates(const OuterSchedule& schedule,
                                 uint64_t rounds) {
  std::vector<float> rates;
  for (uint64_t version = 0; version < rounds; ++version) {
    rates.push_back(schedule.At(version).learning_rate);
  }
  return rates;
}

std::vector<float> Momenta(const OuterSchedule& schedule, uint64_t rounds) {
  std::vector<float> momenta;
  for (uint64_t version = 0; version < rounds; ++version) {
    momenta.push_back(schedule.At(version).momentum);
  }
  return momenta;
}

TEST(OuterScheduleTest, WithoutOneEveryRoundHasTheSameRates) {
  v1::OuterOptimizerConfig config;
  config.set_learning_rate(0.7);
  config.set_momentum(0.9);
  const OuterSchedule schedule = MakeOuterSchedule(config, 7);
  for (const uint64_t version : {0, 1, 6, 7, 1000}) {
    EXPECT_EQ(schedule.At(version), (OuterRates{0.7f, 0.9f})) << version;
  }
}

TEST(OuterScheduleTest, TheLearningRateRisesThenFallsToItsShare) {
  v1::OuterOptimizerConfig config;
  config.set_learning_rate(8);
  config.set_learning_rate_warmup_rounds(4);
  config.set_final_learning_rate_ratio(0.25);
  EXPECT_THAT(LearningRates(MakeOuterSchedule(config, 8), 9),
              ElementsAre(2, 4, 6, 8, 6.5f, 5, 3.5f, 2, 2));
  config.clear_learning_rate_warmup_rounds();
  EXPECT_THAT(LearningRates(MakeOuterSchedule(config, 4), 4),
              ElementsAre(8, 6, 4, 2));
  config.set_learning_rate_warmup_rounds(1);
  EXPECT_THAT(LearningRates(MakeOuterSchedule(config, 4), 4),
              ElementsAre(8, 6, 4, 2))
      << "the same as no warm-up";
}

TEST(OuterScheduleTest, AShortRunMayEndInTheWarmUp) {
  v1::OuterOptimizerConfig config;
  config.set_learning_rate(1);
  config.set_learning_rate_warmup_rounds(4);
  config.set_final_learning_rate_ratio(0.5);
  EXPECT_THAT(LearningRates(MakeOuterSchedule(config, 2), 2),
              ElementsAre(0.25f, 0.5f));
  EXPECT_THAT(LearningRates(MakeOuterSchedule(config, 4), 4),
              ElementsAre(0.25f, 0.5f, 0.75f, 1));
  EXPECT_EQ(MakeOuterSchedule(config, 1).At(0).learning_rate, 0.25f);
}

TEST(OuterScheduleTest, TheMomentumGoesFromItsFirstValueToItsOwn) {
  v1::OuterOptimizerConfig config;
  config.set_momentum(0.5);
  config.set_momentum_warmup_rounds(4);
  EXPECT_THAT(Momenta(MakeOuterSchedule(config, 9), 6),
              ElementsAre(0, 0.125f, 0.25f, 0.375f, 0.5f, 0.5f));
  config.set_initial_momentum(0.75);
  EXPECT_THAT(Momenta(MakeOuterSchedule(config, 2), 6),
              ElementsAre(0.75f, 0.6875f, 0.625f, 0.5625f, 0.5f, 0.5f))
      << "also beyond the end";
  config.clear_momentum_warmup_rounds();
  EXPECT_THAT(Momenta(MakeOuterSchedule(config, 9), 2),
              ElementsAre(0.5f, 0.5f));
}

}  // namespace
}  // namespace causeway
