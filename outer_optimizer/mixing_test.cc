// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/mixing.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

TEST(MixingTest, PseudoGradientIsOldMinusNew) {
  std::vector<float> out(2);
  PseudoGradient({1.0f, 2.0f}, {0.5f, 4.0f}, absl::MakeSpan(out));
  EXPECT_THAT(out, ElementsAre(0.5f, -2.0f));
}

TEST(MixingTest, PseudoGradientMayReplaceTheParameters) {
  std::vector<float> parameters = {0.5f, 4.0f};
  PseudoGradient({1.0f, 2.0f}, parameters, absl::MakeSpan(parameters));
  EXPECT_THAT(parameters, ElementsAre(0.5f, -2.0f));
}

TEST(MixingTest, WhatWasTrainedSinceTheSendStays) {
  std::vector<float> parameters = {4, 0};
  Mix({2, 0}, {3.5f, 0.25f}, absl::MakeSpan(parameters));
  EXPECT_THAT(parameters, ElementsAre(2 + 0.5f, -0.25f));
}

TEST(MixingTest, TheNextAnchorIsInBothPlaces) {
  std::vector<float> change = {0.5f, -1.0f, 2.0f};
  std::vector<float> next(3);
  NextAnchor({1.0f, 2.0f, 3.0f}, absl::MakeSpan(change), absl::MakeSpan(next));
  EXPECT_THAT(next, ElementsAre(1.5f, 1.0f, 5.0f));
  EXPECT_EQ(change, next);
}

TEST(MixingTest, ParametersAreAssignedTheAnchor) {
  std::vector<float> parameters(3, 7.0f);
  Assign({1.0f, -0.0f, 3.0f}, absl::MakeSpan(parameters));
  EXPECT_EQ(Bits(parameters), Bits({1.0f, -0.0f, 3.0f}));
}

// Small steps are not lost in large parameters: one rounding is left.
TEST(MixingTest, TheTrainingSinceTheSendIsExact) {
  const float snapshot = 1.0f + 0x1p-20f;
  std::vector<float> parameters = {snapshot + 0x1p-23f};
  Mix({0x1p-4f}, {snapshot}, absl::MakeSpan(parameters));
  EXPECT_THAT(parameters, ElementsAre(0x1p-4f + 0x1p-23f));
}

TEST(MixingTest, ParametersThatHaveNotChangedBecomeTheAnchor) {
  const std::vector<float> anchor = {0.0f, 1, 0.1f, 5, 1e-40f, -3e38f};
  std::vector<float> parameters = {0.7f, 1e-40f, -3e38f, -0.0f, 0.0f, 1e30f};
  const std::vector<float> snapshot = parameters;
  Mix(anchor, snapshot, absl::MakeSpan(parameters));
  EXPECT_EQ(Bits(parameters), Bits(anchor));
}

// An island whose contribution is not merged has trained from the old anchor.
TEST(MixingTest, ARebaseKeepsWhatTheIslandHasLearnt) {
  const std::vector<float> anchor = {1, 2, 0.1f};
  const std::vector<float> next = {1.25f, 1, 0.11f};
  std::vector<float> parameters = {1.5f, 1.75f, 0.3f};
  std::vector<float> before(3);
  PseudoGradient(anchor, parameters, absl::MakeSpan(before));
  Mix(next, anchor, absl::MakeSpan(parameters));
  std::vector<float> after(3);
  PseudoGradient(next, parameters, absl::MakeSpan(after));
  EXPECT_THAT(after, Pointwise(testing::FloatNear(1e-7f), before));
  EXPECT_EQ(parameters[0], 1.75f);
}

}  // namespace
}  // namespace causeway
