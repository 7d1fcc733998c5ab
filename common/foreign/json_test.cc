// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "common/foreign/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

std::string Nested(int levels) {
  return absl::StrCat("{\"a\":", std::string(levels - 1, '['), "1",
                      std::string(levels - 1, ']'), "}");
}

TEST(ForeignJson, BoundsTheDepth) {
  EXPECT_OK(ParseForeignJson(Nested(64)));
  for (const int levels : {65, 40000, 4'000'000}) {
    EXPECT_THAT(ParseForeignJson(Nested(levels)),
                IsInvalidArgument("nested deeper than 64"));
  }
  // Unbalanced, as a file that is cut off.
  EXPECT_THAT(ParseForeignJson(std::string(40000, '[')), IsInvalidArgument());
}

TEST(ForeignJson, BracketsInStringsAreNoLevels) {
  const std::string brackets(1000, '[');
  ASSERT_OK_AND_ASSIGN(
      const nlohmann::json json,
      ParseForeignJson(absl::StrCat(R"({"\"a": "\\)", brackets, "\"}")));
  EXPECT_EQ(json["\"a"], "\\" + brackets);
}

TEST(ForeignJson, WantsAnObject) {
  for (const char* text : {"", "[1]", "7", "null", "{\"a\":", "{} {}"}) {
    EXPECT_THAT(ParseForeignJson(text), IsInvalidArgument()) << text;
  }
}

}  // namespace
}  // namespace causeway
