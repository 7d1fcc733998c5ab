// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/outer_gain.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;
using Outer = v1::OuterOptimizerConfig;

v1::RunConfig Config(double learning_rate, double momentum, uint32_t steps,
                     uint32_t islands,
                     Outer::Algorithm algorithm = Outer::NESTEROV) {
  v1::RunConfig config;
  config.mutable_outer_optimizer()->set_algorithm(algorithm);
  config.mutable_outer_optimizer()->set_learning_rate(learning_rate);
  config.mutable_outer_optimizer()->set_momentum(momentum);
  config.mutable_synchronization()->set_inner_steps_per_round(steps);
  config.mutable_membership()->set_min_islands(islands);
  return config;
}

// By hand, with rho 0.56 up to 16 steps, half way 0.425, and 0.29 from 64 on.
TEST(OuterGainTest, TheRateFollowsItsEquation) {
  EXPECT_NEAR(EffectiveOuterRate(Config(0.5, 0.5, 10, 2)),
              0.5 * (1 + 0.5 / 0.72), 1e-9);
  EXPECT_NEAR(EffectiveOuterRate(Config(1, 0.8, 32, 2)), 1 + 0.8 / 0.66, 1e-9);
  EXPECT_NEAR(EffectiveOuterRate(Config(2, 0.5, 500, 2)), 2 * (1 + 0.5 / 0.855),
              1e-9);
  EXPECT_NEAR(EffectiveOuterRate(Config(2, 0.5, 500, 2, Outer::HEAVY_BALL)),
              2 / 0.855, 1e-9);
  EXPECT_EQ(EffectiveOuterRate(Config(0.7, 0.9, 32, 2, Outer::SGD)), 0.7);
}

TEST(OuterGainTest, WhatFitsGetsNoAdvice) {
  EXPECT_EQ(OuterGainAdvice(Config(0.7, 0.9, 500, 8), 200),
            "effective rate 1.55 (learning rate 0.7, momentum 0.9, H 500); "
            "tuned runs of several islands have 0.7 to 2.5");
}

TEST(OuterGainTest, WhatIsTooFastOrTooSlowGetsValuesThatAreNot) {
  EXPECT_EQ(OuterGainAdvice(Config(1, 0.9, 16, 1), 200),
            "effective rate 2.81 (learning rate 1, momentum 0.9, H 16); tuned "
            "runs of one island have 1.0 to 1.6: learning_rate 0.57 would, or "
            "momentum 0.45");
  EXPECT_NEAR(EffectiveOuterRate(Config(0.57, 0.9, 16, 1)), 1.6, 0.02);
  EXPECT_NEAR(EffectiveOuterRate(Config(1, 0.45, 16, 1)), 1.6, 0.02);
  EXPECT_THAT(OuterGainAdvice(Config(0.4, 0.5, 100, 2), 200),
              HasSubstr("have 0.7 to 2.5: learning_rate 0.44 would"));
  // No momentum compensates for this learning rate.
  const std::string slow = OuterGainAdvice(Config(0.1, 0.5, 100, 2), 200);
  EXPECT_THAT(slow, HasSubstr("learning_rate 0.44 would"));
  EXPECT_THAT(slow, Not(HasSubstr("or momentum")));
  EXPECT_THAT(OuterGainAdvice(Config(2, 0.9, 100, 2, Outer::HEAVY_BALL), 200),
              HasSubstr("or momentum 0.69"));
  EXPECT_THAT(OuterGainAdvice(Config(0.5, 0.9, 100, 1, Outer::SGD), 5),
              HasSubstr("effective rate 0.50; tuned runs of one island have "
                        "1.0 to 1.6: learning_rate 1 would"));
}

TEST(OuterGainTest, AMomentumThatIsLongerThanTheRunIsNamed) {
  EXPECT_THAT(
      OuterGainAdvice(Config(0.7, 0.9, 100, 2), 25),
      HasSubstr("; the momentum remembers 10 of only 25 rounds: at most "
                "0.8 suits these"));
  EXPECT_THAT(OuterGainAdvice(Config(0.7, 0.79, 100, 2), 25),
              Not(HasSubstr("remembers")));
  EXPECT_THAT(OuterGainAdvice(Config(0.7, 0.5, 100, 2), 3),
              HasSubstr("at most 0 suits"));
}

TEST(OuterGainTest, RadialMergesHaveNoRange) {
  v1::RunConfig config = Config(9, 0.5, 100, 2);
  config.mutable_outer_optimizer()->set_merge(Outer::RADIAL_DIRECTIONAL);
  EXPECT_THAT(OuterGainAdvice(config, 200), Not(HasSubstr("tuned")));
}

}  // namespace
}  // namespace causeway
