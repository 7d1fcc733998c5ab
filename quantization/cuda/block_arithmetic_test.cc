// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/cuda/block_arithmetic.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/formats/testing/block_reference.h"

namespace causeway {
namespace {

// Runs every test for each format.
template <typename Format>
class BlockArithmeticTest : public testing::Test {};

template <BlockFormat kValue>
struct Format {
  static constexpr BlockFormat kFormat = kValue;
};
using AllFormats =
    testing::Types<Format<BlockFormat::kInt8>, Format<BlockFormat::kInt4>,
                   Format<BlockFormat::kE3m0>>;
TYPED_TEST_SUITE(BlockArithmeticTest, AllFormats);

template <BlockFormat kFormat>
uint32_t CodeOf(uint16_t scale, float value) {
  if (!HasCodes(scale)) return 0;
  const float top = TopValue<kFormat>(scale);
  value = std::fmax(-top, std::fmin(value, top));
  return BlockQuantizer<kFormat>(ScaleValue(scale)).Code(value);
}

TEST(MaxMagnitudeTest, ANanOutweighsAll) {
  EXPECT_EQ(MaxMagnitude(-3, 2), 3);
  EXPECT_EQ(MaxMagnitude(0, -INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(MaxMagnitude(NAN, INFINITY)));
  EXPECT_TRUE(std::isnan(MaxMagnitude(1, -NAN)));
}

// Tests all upper halves of a binary32, with lower halves around a tie in
// rounding.
TYPED_TEST(BlockArithmeticTest, ScalesOfAllMagnitudes) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  for (uint32_t high = 0; high < 0x8000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u}) {
      const float absmax = std::bit_cast<float>(high << 16 | low);
      ASSERT_EQ(BlockScale<kFormat>(absmax), ScaleOfAbsmax(kFormat, absmax))
          << absmax;
    }
  }
}

// Tests values that can occur in blocks with a scale, under scales of all
// magnitudes.
TYPED_TEST(BlockArithmeticTest, CodesUnderAllScales) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  std::mt19937 random(1);
  for (uint32_t scale = kSmallestScale; scale <= LargestScale(kFormat);
       scale += 7) {
    const float top = TopLevel(kFormat) * FloatFromBf16(scale);
    for (int i = 0; i < 64; ++i) {
      // Rounding makes a scale smaller by up to one part in 2^8.
      float value =
          std::ldexp(static_cast<float>(random()), -32) * (1.0039f * top);
      if (i % 2 == 0) value = -value;
      if (i % 8 == 0) value = std::ldexp(value, -static_cast<int>(i / 4));
      ASSERT_EQ(CodeOf<kFormat>(scale, value),
                EncodeValue(kFormat, scale, value))
          << "scale " << scale << ", value " << value;
    }
  }
}

TYPED_TEST(BlockArithmeticTest, CodesAroundHalfWaysBetweenLevels) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  constexpr uint32_t kCodes = 1u << CodeBits(kFormat);
  // The scales have eight significant bits, and products with the powers of two
  // among them are exact.
  for (const float scale : {1.0f, 0.5f, 1.3046875f, 0x1.fep-12f, 0x1.01p40f}) {
    const uint16_t code = Bf16FromFloat(scale);
    const float top = TopLevel(kFormat) * FloatFromBf16(code);
    for (uint32_t low = 0; low < kCodes; ++low) {
      for (uint32_t high = 0; high < kCodes; ++high) {
        const float middle = (DecodeValue(kFormat, code, low) / 2 +
                              DecodeValue(kFormat, code, high) / 2);
        for (float value : {std::nextafter(middle, -INFINITY), middle,
                            std::nextafter(middle, INFINITY)}) {
          if (!(std::fabs(value) <= top)) continue;
          ASSERT_EQ(CodeOf<kFormat>(code, value),
                    EncodeValue(kFormat, code, value))
              << "scale " << scale << ", value " << value;
        }
      }
    }
  }
}

TYPED_TEST(BlockArithmeticTest, SaturatesBeyondTheLargestScale) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  constexpr uint16_t kScale = LargestScale(kFormat);
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const float value : {kLargest, -kLargest, 0.7f * kLargest, 1e30f}) {
    EXPECT_EQ(CodeOf<kFormat>(kScale, value),
              EncodeValue(kFormat, kScale, value));
  }
}

TYPED_TEST(BlockArithmeticTest, NoScaleNoCode) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  for (const uint16_t scale : {uint16_t{0}, kInfiniteScale, kNanScale}) {
    for (const float value : {0.0f, -1.0f, 1e38f, INFINITY, NAN}) {
      EXPECT_EQ(CodeOf<kFormat>(scale, value), 0u);
    }
  }
}

TYPED_TEST(BlockArithmeticTest, LevelsOfAllCodes) {
  constexpr BlockFormat kFormat = TypeParam::kFormat;
  constexpr auto kTable = DecodeTable<kFormat>::Make();
  for (uint32_t code = 0; code < 1u << CodeBits(kFormat); ++code) {
    const float want = DecodeValue(kFormat, Bf16FromFloat(1), code);
    const float got = LevelOf<kFormat>(kTable, code);
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
        << code;
  }
}

}  // namespace
}  // namespace causeway
