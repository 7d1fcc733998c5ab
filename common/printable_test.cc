// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/printable.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(PrintableTest, TextStaysAsItIs) {
  for (const char* text : {"", "island east: 3 %", "\u00e4\u00df",
                           "\u65e5\u672c", "\U0001f30d", "\\x1b"}) {
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatMovesTheCursorOrTheEyeIsEscaped) {
  EXPECT_EQ(Printable("a\nb\r\t"), "a\\x0ab\\x0d\\x09");
  EXPECT_EQ(Printable("\x1b[2J\x07\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(Printable(std::string(1, '\0')), "\\x00");
  // C1 controls, among them CSI, which some terminals take for ESC [.
  EXPECT_EQ(Printable("\u009b1m"), "\\x9b1m");
  EXPECT_EQ(Printable("\u202egpj.exe"), "\\u202egpj.exe");
  EXPECT_EQ(Printable("\u2066\u2069\u200f\u061c"),
            "\\u2066\\u2069\\u200f\\u061c");
  EXPECT_EQ(Printable("\u2028"), "\\u2028");
}

// The ends of the ranges in RFC 3629, and what lies just beyond them.
TEST(PrintableTest, BytesThatAreNotUtf8AreEscaped) {
  for (const char* text :
       {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text));
  }
  for (const char* text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xe2\x82", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "\xc2 "}) {
    EXPECT_FALSE(IsUtf8(text));
    EXPECT_EQ(Printable(text).find("\\x"), 0) << Printable(text);
  }
  EXPECT_EQ(Printable("a\xff\xe2\x82z"), "a\\xff\\xe2\\x82z");
}

TEST(PrintableTest, ExcerptsAreCutBetweenCharacters) {
  EXPECT_EQ(Excerpt("short"), "short");
  EXPECT_EQ(Excerpt("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Excerpt(std::string(1000, 'x'), 3), "xxx...");
  EXPECT_EQ(Excerpt("a\u00e9b", 2), "a...");
  EXPECT_EQ(Excerpt("a\u00e9b", 3), "a\u00e9...");
  EXPECT_EQ(Excerpt("a\u00e9b", 4), "a\u00e9b");
}

TEST(PrintableTest, LinesOfAMessageStayLines) {
  EXPECT_EQ(PrintableLines("a\nb\x1b\n"), "a\nb\\x1b\n");
  const std::string cut = PrintableLines(std::string(10 << 20, 'x'));
  EXPECT_LT(cut.size(), 40 << 10);
  EXPECT_TRUE(absl::EndsWith(cut, "x..."));
}

}  // namespace
}  // namespace causeway
