// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/open_files.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(OpenFilesTest, IsOpenedOnceForAllWhoReadItTogether) {
  OpenFiles<std::string> files;
  int opened = 0;
  const auto open = [&]() -> absl::StatusOr<std::string> {
    ++opened;
    return "contents";
  };
  std::vector<std::shared_ptr<const std::string>> read(16);
  std::vector<std::thread> readers;
  for (std::shared_ptr<const std::string>& file : read) {
    readers.emplace_back(
        [&] { file = files.Get("a", "digest", open).value(); });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(opened, 1);
  for (const auto& file : read) EXPECT_EQ(file, read[0]);
  ASSERT_OK(files.Get("b", "digest", open));
  EXPECT_EQ(opened, 2);
}

TEST(OpenFilesTest, DoesNotWaitForAnother) {
  OpenFiles<std::string> files;
  ASSERT_OK_AND_ASSIGN(
      const auto file,
      files.Get("a", "digest", [&]() -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(const auto other, files.Get("b", "digest", [] {
          return absl::StatusOr<std::string>("contents");
        }));
        return *other + " of both";
      }));
  EXPECT_EQ(*file, "contents of both");
}

TEST(OpenFilesTest, IsClosedWithItsLastReader) {
  OpenFiles<std::shared_ptr<int>> files;
  const auto contents = std::make_shared<int>(7);
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<int>> {
    return contents;
  };
  for (int times = 0; times < 2; ++times) {
    ASSERT_OK_AND_ASSIGN(const auto file, files.Get("a", "digest", open));
    EXPECT_EQ(contents.use_count(), 2);
  }
  EXPECT_EQ(contents.use_count(), 1);
}

// A version whose commit failed is made again while a reader still has the
// first one.
TEST(OpenFilesTest, IsOpenedAnewForOtherContents) {
  OpenFiles<std::string> files;
  ASSERT_OK_AND_ASSIGN(const auto before, files.Get("a", "1", [] {
    return absl::StatusOr<std::string>("old");
  }));
  ASSERT_OK_AND_ASSIGN(const auto after, files.Get("a", "2", [] {
    return absl::StatusOr<std::string>("new");
  }));
  EXPECT_EQ(*before, "old");
  EXPECT_EQ(*after, "new");
}

TEST(OpenFilesTest, AFailureIsNotKept) {
  OpenFiles<int> files;
  EXPECT_THAT(
      files.Get("a", "digest", [] { return absl::DataLossError("torn"); }),
      IsDataLoss());
  ASSERT_OK_AND_ASSIGN(const auto file, files.Get("a", "digest", [] {
    return absl::StatusOr<int>(3);
  }));
  EXPECT_EQ(*file, 3);
}

}  // namespace
}  // namespace causeway
