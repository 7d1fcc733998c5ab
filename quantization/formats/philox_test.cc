// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/philox.h"

#include <bit>
#include <cstdint>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

// The known answers come with the authors' library, Random123.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                         {0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(RoundingRandomTest, IsWordsOfConsecutiveBlocks) {
  EXPECT_EQ(RoundingRandom(0, 0), 0x6627e8d5u);
  EXPECT_EQ(RoundingRandom(0, 16), 0xe169c58du);
  EXPECT_EQ(RoundingRandom(0, 48), 0x9b00dbd8u);
  EXPECT_EQ(RoundingRandom(0x1122334455667788, (uint64_t{1} << 40) + 70),
            Philox4x32({22, 1u << 6, 0, 0}, {0x55667788, 0x11223344})[0]);
}

TEST(RoundingRandomTest, NoTwoValuesShareANumberAndBitsAreFair) {
  std::set<uint32_t> seen;
  uint64_t bits = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const uint32_t random = RoundingRandom(7, i);
    seen.insert(random);
    bits += std::popcount(random);
  }
  // A collision among 10 000 numbers of 32 bits has probability 1.2 %.
  EXPECT_GE(seen.size(), 9999u);
  EXPECT_NEAR(static_cast<double>(bits), 160000, 5 * 283);
}

}  // namespace
}  // namespace causeway
