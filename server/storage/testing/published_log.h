// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of logs and their copies: a log whose changes are kept as they are
// published, in a directory of the test's own.
#ifndef SERVER_STORAGE_TESTING_PUBLISHED_LOG_H_
#define SERVER_STORAGE_TESTING_PUBLISHED_LOG_H_

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/storage/commit_log.h"
#include "server/storage/sqlite.h"

namespace causeway {

class PublishedLogTest : public testing::Test {
 protected:
  PublishedLogTest()
      : directory_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_OK(CreateDirectory(directory_));
    log_ = Open("log");
    log_->Publish([this](std::shared_ptr<const v1::LogChange> change) {
      changes_.push_back(std::move(change));
    });
  }

  std::string PathOf(const std::string& name) const {
    return absl::StrCat(directory_, "/", name);
  }
  std::unique_ptr<CommitLog> Open(const std::string& name) const {
    auto log = CommitLog::Open(PathOf(name));
    EXPECT_OK(log);
    return *std::move(log);
  }
  SqliteDatabase OpenDatabase(const std::string& name) const {
    auto database = SqliteDatabase::Open(
        PathOf(name), SqliteDatabase::Mode::kReadWriteCreate);
    EXPECT_OK(database);
    return *std::move(database);
  }

  const std::string directory_;
  std::mt19937_64 random_{1};
  // Is called "log", and has no run yet.
  std::unique_ptr<CommitLog> log_;
  std::vector<std::shared_ptr<const v1::LogChange>> changes_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_TESTING_PUBLISHED_LOG_H_
