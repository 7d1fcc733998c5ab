// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/code_counts.h"

#include <cstdint>
#include <random>
#include <string>

#include "common/testing/highway_targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace causeway {
namespace {

// Runs every test once for each instruction set that this machine has.
class CodeCountsTest : public testing::TestWithParam<int64_t> {
 protected:
  const ScopedHighwayTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, CodeCountsTest,
                         testing::ValuesIn(HighwayTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

TEST_P(CodeCountsTest, CountsBytesAndNibbles) {
  std::mt19937 random(1);
  for (const size_t size : {0, 1, 63, 64, 65, 447, 448, 4096 + 7, 1 << 15}) {
    for (const uint32_t mask : {0xffu, 0x13u, 0x00u}) {
      std::string codes(size, '\0');
      CodeCounts bytes = {};
      CodeCounts nibbles = {};
      for (char& code : codes) {
        const uint8_t byte = static_cast<uint8_t>(random() & mask);
        code = static_cast<char>(byte);
        ++bytes[byte];
        ++nibbles[byte & 15];
        ++nibbles[byte >> 4];
      }
      EXPECT_EQ(CountCodes(SymbolWidth::kByte, codes), bytes);
      EXPECT_EQ(CountCodes(SymbolWidth::kNibble, codes), nibbles);
    }
  }
}

}  // namespace
}  // namespace causeway
