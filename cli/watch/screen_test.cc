// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/screen.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(ScreenLineTest, IsCutAtTheLastColumn) {
  ScreenLine line("abc");
  line.Add("\u00e4\u00f6\u00fc", Style::kBold);
  EXPECT_EQ(line.width(), 6);
  EXPECT_EQ(line.Text({.columns = 6}), "abc\u00e4\u00f6\u00fc");
  EXPECT_EQ(line.Text({.columns = 5}), "abc\u00e4>");
  EXPECT_EQ(line.Text({.columns = 5, .unicode = true}), "abc\u00e4\u2026");
  EXPECT_EQ(line.Text({.columns = 1}), ">");
  EXPECT_EQ(line.Text({.columns = 0}), "");
  EXPECT_EQ(line.Text({.columns = 5, .colours = true}),
            "abc\x1b[1m\u00e4\x1b[0m>");
}

TEST(ScreenLineTest, TextOnTheRightNeedsRoom) {
  EXPECT_EQ(ScreenLine("abc").AddRight("de", 7, Style::kDim).Text({}),
            "abc  de");
  EXPECT_EQ(ScreenLine("abc").AddRight("de", 6, Style::kDim).Text({}), "abc");
}

}  // namespace
}  // namespace causeway
