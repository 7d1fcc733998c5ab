// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/durable_shadow.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

namespace fs = std::filesystem;

class DurableShadowTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(scratch_.status());
    directory_ = scratch_->path();
    root_ = directory_ / "root";
    fs::create_directory(root_);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
  }
  void Sync(DurableShadow& shadow, const std::string& name) {
    const int file = open((root_ / name).c_str(), O_RDONLY);
    ASSERT_GE(file, 0);
    shadow.SyncFile(file);
    close(file);
  }
  // Returns the content that survives under this name; "none" if nothing does.
  std::string Survivor(const std::string& name) {
    std::ifstream file(directory_ / "shadow/tree" / name);
    if (!file) return "none";
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  DurableShadow NewShadow() {
    return DurableShadow(root_, directory_ / "shadow");
  }

  const absl::StatusOr<TemporaryDirectory> scratch_ =
      TemporaryDirectory::Make("causeway-shadow");
  fs::path directory_;
  fs::path root_;
};

TEST_F(DurableShadowTest, WhatIsThereAtFirstIsDurable) {
  fs::create_directory(root_ / "in");
  Write("in/file", "old");
  NewShadow();
  EXPECT_EQ(Survivor("in/file"), "old");
}

TEST_F(DurableShadowTest, AFileNeedsItsContentAndItsNameSynced) {
  DurableShadow shadow = NewShadow();
  Write("file", "text");
  EXPECT_EQ(Survivor("file"), "none");
  Sync(shadow, "file");
  EXPECT_EQ(Survivor("file"), "none");
  shadow.SyncDirectory(root_);
  EXPECT_EQ(Survivor("file"), "text");
  Write("file", "later");
  EXPECT_EQ(Survivor("file"), "text");
  Sync(shadow, "file");
  EXPECT_EQ(Survivor("file"), "later");
}

TEST_F(DurableShadowTest, ANameWithoutSyncedContentIsEmpty) {
  DurableShadow shadow = NewShadow();
  Write("file", "text");
  shadow.SyncAllDirectories();
  EXPECT_EQ(Survivor("file"), "");
}

TEST_F(DurableShadowTest, ARenameIsDurableWithItsDirectory) {
  Write("file", "old");
  DurableShadow shadow = NewShadow();
  Write("file.tmp", "new");
  Sync(shadow, "file.tmp");
  shadow.Release(root_ / "file");
  fs::rename(root_ / "file.tmp", root_ / "file");
  EXPECT_EQ(Survivor("file"), "old");
  shadow.SyncDirectory(root_);
  EXPECT_EQ(Survivor("file"), "new");
  EXPECT_EQ(Survivor("file.tmp"), "none");
}

TEST_F(DurableShadowTest, ARemovedFileSurvivesUntilItsDirectoryIsSynced) {
  Write("file", "text");
  DurableShadow shadow = NewShadow();
  shadow.Release(root_ / "file");
  fs::remove(root_ / "file");
  // This file may get the inode that has become free.
  Write("other", "other");
  Sync(shadow, "other");
  EXPECT_EQ(Survivor("file"), "text");
  shadow.SyncDirectory(root_);
  EXPECT_EQ(Survivor("file"), "none");
  EXPECT_EQ(Survivor("other"), "other");
}

TEST_F(DurableShadowTest, ADirectoryIsLostWithoutItsOwnEntry) {
  DurableShadow shadow = NewShadow();
  fs::create_directory(root_ / "in");
  Write("in/file", "text");
  Sync(shadow, "in/file");
  shadow.SyncDirectory(root_ / "in");
  EXPECT_EQ(Survivor("in/file"), "none");
  shadow.SyncDirectory(root_);
  shadow.SyncDirectory(root_ / "in");
  EXPECT_EQ(Survivor("in/file"), "text");
}

}  // namespace
}  // namespace causeway
