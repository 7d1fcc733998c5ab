// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/layout.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(StripLayoutTest, TheLastStripMayBeShorter) {
  EXPECT_EQ(StripCount(0), 0u);
  EXPECT_EQ(StripCount(1), 1u);
  EXPECT_EQ(StripCount(65536), 1u);
  EXPECT_EQ(StripCount(65537), 2u);
  EXPECT_EQ(StripCount(~uint64_t{0}), uint64_t{1} << 48);
  EXPECT_EQ(ValuesOfStrip(0, 10), 10u);
  EXPECT_EQ(ValuesOfStrip(0, 65537), 65536u);
  EXPECT_EQ(ValuesOfStrip(1, 65537), 1u);
}

TEST(StripLayoutTest, RangesAreCutWhereStripsEnd) {
  const auto parts = [](uint64_t begin, uint64_t count) {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    ForEachStripPart(begin, count, [&](uint64_t part, uint64_t length) {
      parts.emplace_back(part, length);
    });
    return parts;
  };
  EXPECT_THAT(parts(65536, 0), IsEmpty());
  EXPECT_THAT(parts(256, 65280), ElementsAre(Pair(256, 65280)));
  EXPECT_THAT(parts(256, 65281), ElementsAre(Pair(256, 65280), Pair(65536, 1)));
  EXPECT_THAT(
      parts(65280, 131072),
      ElementsAre(Pair(65280, 256), Pair(65536, 65536), Pair(131072, 65280)));
}

TEST(StripHeaderTest, IsFourLittleEndianBytes) {
  const StripHeader header{
      .bytes = 0x123456, .parameter = 0x2a, .compressed = true};
  std::string bytes(4, '\0');
  WriteStripHeader(header, bytes.data());
  EXPECT_EQ(bytes, "\x56\x34\x12\xaa");
  EXPECT_EQ(ReadStripHeader(bytes.data()), header);
  EXPECT_EQ(ReadStripHeader("\x00\x00\x00\x7f"),
            (StripHeader{.parameter = 0x7f}));
}

}  // namespace
}  // namespace causeway
