// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/testing/temporary_directory.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

TEST(TemporaryDirectoryTest, GoesWithWhatIsInIt) {
  std::string path;
  {
    ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                         TemporaryDirectory::Make("some-test"));
    path = directory.path();
    EXPECT_THAT(path, HasSubstr("/some-test-"));
    fs::create_directory(path + "/inner");
    std::ofstream(path + "/inner/file") << "text";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryDirectoryTest, EachIsNew) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory one,
                       TemporaryDirectory::Make("some-test"));
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory other,
                       TemporaryDirectory::Make("some-test"));
  EXPECT_NE(one.path(), other.path());
}

TEST(TemporaryDirectoryTest, IsRemovedByItsLastOwner) {
  std::string path;
  {
    std::optional<TemporaryDirectory> last;
    {
      ASSERT_OK_AND_ASSIGN(TemporaryDirectory first,
                           TemporaryDirectory::Make("some-test"));
      path = first.path();
      last.emplace(std::move(first));
    }
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryDirectoryTest, StaysIfItIsKeptOrWasNamed) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory outer,
                       TemporaryDirectory::Make("some-test"));
  const std::string named = absl::StrCat(outer.path(), "/named");
  EXPECT_OK(TemporaryDirectory::MakeUnless(named, "some-test"));
  EXPECT_TRUE(fs::is_directory(named));

  std::string kept;
  {
    ASSERT_OK_AND_ASSIGN(TemporaryDirectory directory,
                         TemporaryDirectory::MakeUnless("", "some-test"));
    directory.Keep();
    kept = directory.path();
  }
  EXPECT_TRUE(fs::is_directory(kept));
  fs::remove(kept);
}

TEST(TemporaryDirectoryTest, SaysWhatIsWrong) {
  EXPECT_THAT(TemporaryDirectory::Make("missing/directory"),
              IsNotFound("missing/directory"));
}

}  // namespace
}  // namespace causeway
