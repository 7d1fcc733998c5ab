// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/dense_reference.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace causeway {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Bf16Test, RoundsToNearestEven) {
  EXPECT_EQ(Bf16FromFloat(1.0f), 0x3f80);
  EXPECT_EQ(Bf16FromFloat(-2.0f), 0xc000);
  // Halves go down to an even code, up from an odd one.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f808000)), 0x3f80);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f817fff)), 0x3f81);
  // The carry runs from the fraction into the exponent.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3fffffff)), 0x4000);
}

TEST(Bf16Test, HandlesTheEndsOfTheRange) {
  EXPECT_EQ(Bf16FromFloat(0.0f), 0x0000);
  EXPECT_EQ(Bf16FromFloat(-0.0f), 0x8000);
  // Denormals are rounded like all others, not flushed.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x00010000)), 0x0001);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x00018000)), 0x0002);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x00000001)), 0x0000);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x80008001)), 0x8001);
  // Values beyond the largest bfloat16 by half a unit or more become infinity.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7f7f7fff)), 0x7f7f);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7f7f8000)), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(-std::numeric_limits<float>::infinity()), 0xff80);
}

TEST(Bf16Test, KeepsNanAndMakesItQuiet) {
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7fc00000)), 0x7fc0);
  // The payload of this signalling NaN lies wholly in the lost bits.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7f800001)), 0x7fc0);
  // Rounding this one up would give negative zero.
  EXPECT_EQ(Bf16FromFloat(FromBits(0xffffffff)), 0xffff);
}

TEST(Bf16Test, EveryCodeIsTheUpperHalfOfAFloatAndComesBack) {
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    const float value = FloatFromBf16(static_cast<uint16_t>(code));
    ASSERT_EQ(Bits(value), code << 16);
    const uint32_t quiet = std::isnan(value) ? 0x0040 : 0;
    ASSERT_EQ(Bf16FromFloat(value), code | quiet);
  }
}

// The nearer neighbour is taken. The test computes in double, where the
// distances are exact.
TEST(Bf16Test, NoNeighbourIsNearer) {
  for (uint32_t code = 0; code < 0x7f7f; ++code) {
    for (const uint32_t low :
         {0x0001u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = FromBits((code << 16) | low);
      const double down = FromBits(code << 16);
      const double up = FromBits((code + 1) << 16);
      const double to_down = value - down;
      const double to_up = up - value;
      const uint32_t want = to_down < to_up   ? code
                            : to_down > to_up ? code + 1
                            : code % 2 == 0   ? code
                                              : code + 1;
      ASSERT_EQ(Bf16FromFloat(value), want) << code << " " << low;
      ASSERT_EQ(Bf16FromFloat(-value), want | 0x8000) << code << " " << low;
    }
  }
}

TEST(AccumulateTest, RoundsTheProductBeforeTheSum) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last term is lost when the product
  // is rounded; a fused multiply-add would keep it.
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(Accumulate(-1.0f, x, x), 0x1p-11f);
}

}  // namespace
}  // namespace causeway
