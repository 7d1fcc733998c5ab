// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/reference.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {
namespace {

using testing::ElementsAreArray;

constexpr uint16_t kOne = 0x3f80;
constexpr float kLargest = std::numeric_limits<float>::max();

TEST(EcqUnitTest, IsTheGeometricMeanOfTheTwoRoots) {
  EXPECT_EQ(EcqUnit(16, 81), 6);
  EXPECT_EQ(EcqUnit(0, 5), 0);
  // The arguments are squares of the least and of the largest floats.
  EXPECT_EQ(EcqUnit(0x1p-298, 0x1p-298), 0x1p-149);
  EXPECT_EQ(EcqUnit(0x1p254, 0x1p254), 0x1p127);
}

TEST(EcqScaleTest, IsTheNearestBfloat16OfStepTimesUnit) {
  EXPECT_EQ(EcqScale(0.5, 2, 1), kOne);
  EXPECT_EQ(EcqScale(1 + 0x1p-8, 1, 1), kOne);
  EXPECT_EQ(EcqScale(1 + 0x1.1p-8, 1, 1), kOne + 1);
  EXPECT_EQ(EcqScale(1, 0, 0), 0);
  EXPECT_EQ(EcqScale(1, 0x1p-101, 0x1p-101f), 0);
  EXPECT_EQ(EcqScale(1, 0x1p-100, 0x1p-100f), kSmallestScale);
  EXPECT_EQ(EcqScale(32, kLargest, kLargest), LargestScale(BlockFormat::kInt8));
}

TEST(EcqScaleTest, NoValueIsBeyondTheTopCode) {
  EXPECT_EQ(EcqScale(0.5, 1, 127), kOne);
  EXPECT_EQ(EcqScale(0.5, 1, 127.1f), kOne + 1);
  EXPECT_EQ(EcqCode(EcqScale(0.1, 1, 100), 0, 100), 126);
}

TEST(EcqScaleTest, TellsBlocksThatAreNotFinite) {
  EXPECT_EQ(EcqScale(1, 0, INFINITY), kInfiniteScale);
  EXPECT_EQ(EcqScale(1, 0, NAN), kNanScale);
}

TEST(EcqCodeTest, CutsTheQuotientPlusTheOffset) {
  EXPECT_EQ(EcqCode(kOne, 0.5f, 0.49f), 0);
  EXPECT_EQ(EcqCode(kOne, 0.5f, 0.5f), 1);
  EXPECT_EQ(EcqCode(kOne, 0.5f, -0.5f), -1);
  EXPECT_EQ(EcqCode(kOne, 0.25f, 0.74f), 0);
  EXPECT_EQ(EcqCode(kOne, 0.25f, -1.75f), -2);
  EXPECT_EQ(EcqCode(kOne, 0, 1.99f), 1);
  EXPECT_EQ(EcqCode(kOne, 0.5f, -kLargest), -127);
  EXPECT_EQ(EcqCode(0, 0.5f, 1), 0);
  EXPECT_EQ(EcqCode(kInfiniteScale, 0.5f, 1), 0);
  EXPECT_EQ(EcqCode(kNanScale, 0.5f, INFINITY), 0);
}

TEST(EcqValueTest, IsExactForEveryCodeAndShift) {
  for (const uint16_t scale : {kOne, uint16_t{0x3fff}, uint16_t{0x1234},
                               LargestScale(BlockFormat::kInt8)}) {
    for (int shift = 0; shift < 128; ++shift) {
      for (int code = -128; code < 128; ++code) {
        const double magnitude = code == 0 ? 0 : std::abs(code) - shift / 256.0;
        EXPECT_EQ(double{EcqValue(scale, shift, static_cast<int8_t>(code))},
                  std::copysign(magnitude, code) * FloatFromBf16(scale));
      }
    }
  }
  EXPECT_TRUE(std::isnan(EcqValue(kInfiniteScale, 0, 0)));
}

// The error is at most half a step with offset 1/2, and at most a whole one,
// towards zero, with offset 0.
TEST(EcqValueTest, IsWithinAStepOfTheValue) {
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const float value = (static_cast<float>(random() % 200001) - 1e5f) * 1e-3f;
    EXPECT_NEAR(EcqValue(kOne, 0, EcqCode(kOne, 0.5f, value)), value, 0.50001);
    const float cut = EcqValue(kOne, 0, EcqCode(kOne, 0, value));
    EXPECT_LE(std::fabs(cut), std::fabs(value));
    EXPECT_NEAR(cut, value, 1.00001);
  }
}

// block_golden.py computed these.
TEST(EcqGoldenTest, ScaleCodesAndValues) {
  const std::vector<float> values = {
      1.0f,    -0.5f,  0.75f, 0.74f,       0.02f, 0.0078125f, 0.007f,
      -0.001f, 0.0f,   -0.3f, 0.3f,        0.1f,  -0.1f,      -1.0f,
      0.6f,    -0.85f, 0.42f, -0.0234375f, 0.25f};
  // The squares are exact in binary64, and the order of their sum matters
  // little here.
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  const double mean = squares / static_cast<double>(values.size());
  const uint16_t scale = EcqScale(0.75, EcqUnit(mean, mean), 1);
  EXPECT_EQ(scale, 0x3ec3);
  std::vector<int> codes;
  std::vector<float> decoded;
  for (const float value : values) {
    codes.push_back(EcqCode(scale, 0.421875f, value));
    decoded.push_back(EcqValue(scale, 20, static_cast<int8_t>(codes.back())));
  }
  EXPECT_THAT(codes, ElementsAreArray({3, -1, 2, 2, 0, 0, 0, 0, 0, -1, 1, 0, 0,
                                       -3, 1, -2, 1, 0, 1}));
  const float one = 0x1.6788p-2f;
  const float two = 0x1.76c4p-1f;
  const float three = 0x1.1ce2p+0f;
  EXPECT_THAT(decoded,
              ElementsAreArray({three, -one, two, two, 0.0f, 0.0f, 0.0f, 0.0f,
                                0.0f, -one, one, 0.0f, 0.0f, -three, one, -two,
                                one, 0.0f, one}));
}

}  // namespace
}  // namespace causeway
