// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/foreign/file.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(ForeignFile, ReadsRegularFilesUpToABound) {
  const std::string path = absl::StrCat(testing::TempDir(), "/text");
  ASSERT_OK(WriteFileAtomically(path, {"four"}));
  EXPECT_THAT(ReadForeignFile(path, 4), IsOkAndHolds("four"));
  EXPECT_THAT(ReadForeignFile(path, 3),
              IsInvalidArgument("has 4 bytes; a file of its kind has at "
                                "most 3"));
  EXPECT_THAT(ReadForeignFile(path + ".none"), IsNotFound(path));
}

// The pipe has no writer, and the devices are endless.
TEST(ForeignFile, RefusesPipesDevicesAndDirectories) {
  const std::string pipe = absl::StrCat(testing::TempDir(), "/pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"),
                                  std::string("/dev/null"), std::string("/")}) {
    EXPECT_THAT(ReadForeignFile(path),
                IsInvalidArgument(path + " is not a regular file"));
  }
}

TEST(ForeignFile, NamesPointersOfGitLfs) {
  const std::string path = absl::StrCat(testing::TempDir(), "/pointer");
  ASSERT_OK(WriteFileAtomically(
      path, {"version https://git-lfs.github.com/spec/v1\n"
             "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca"
             "24d17e2393\nsize 12345\n"}));
  EXPECT_THAT(OpenForeignFile(path), IsInvalidArgument("run `git lfs pull`"));
}

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
  // This is unbalanced, like a file that is cut off.
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
