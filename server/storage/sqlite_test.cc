// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/sqlite.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(Sqlite, EveryConnectionWaitsFiveSecondsForALock) {
  const std::string path = absl::StrCat(testing::TempDir(), "/waits.sqlite3");
  ASSERT_OK_AND_ASSIGN(
      SqliteDatabase database,
      SqliteDatabase::Open(path, SqliteDatabase::Mode::kReadWriteCreate));
  EXPECT_THAT(database.QueryInt("PRAGMA busy_timeout"), IsOkAndHolds(5000));
  ASSERT_OK(database.Reopen());
  EXPECT_THAT(database.QueryInt("PRAGMA busy_timeout"), IsOkAndHolds(5000));
}

}  // namespace
}  // namespace causeway
