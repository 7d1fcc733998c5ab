// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/human_units.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(HumanUnitsTest, CountsHaveThreeDigits) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(999.6), "1.00k");
  EXPECT_EQ(HumanCount(1234), "1.23k");
  EXPECT_EQ(HumanCount(12345), "12.3k");
  EXPECT_EQ(HumanCount(123456), "123k");
  EXPECT_EQ(HumanCount(999700), "1.00M");
  EXPECT_EQ(HumanCount(7.89e9), "7.89G");
  EXPECT_EQ(HumanCount(1.2e15), "1200T");
}

TEST(HumanUnitsTest, BytesArePowersOf1024) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(1 << 20), "1.00 MiB");
  EXPECT_EQ(HumanBytes(200e6), "191 MiB");
}

// A value is rounded before its digits are counted.
TEST(HumanUnitsTest, ValuesThatRoundUpToTheNextUnitAreShownInIt) {
  EXPECT_EQ(HumanCount(9994), "9.99k");
  EXPECT_EQ(HumanCount(9996), "10.0k");
  EXPECT_EQ(HumanCount(99940), "99.9k");
  EXPECT_EQ(HumanCount(99960), "100k");
}

}  // namespace
}  // namespace causeway
