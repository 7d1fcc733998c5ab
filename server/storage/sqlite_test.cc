// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/sqlite.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(Sqlite, EveryConnectionWaitsFiveSecondsForALock) {
  const std::string path = absl::StrCat(testing::TempDir(), "/waits.sqlite3");
  ASSERT_OK_AND_ASSIGN(
      SqliteDatabase database,
      SqliteDatabase::Open(path, SqliteDatabase::Mode::kReadWriteCreate));
  EXPECT_THAT(database.QueryInt("PRAGMA busy_timeout"), IsOkAndHolds(5000));
  ASSERT_OK(database.Reopen());
  EXPECT_THAT(database.QueryInt("PRAGMA busy_timeout"), IsOkAndHolds(5000));
}

TEST(Sqlite, ErrorsHaveTheCodeOfTheirCause) {
  const std::string path = absl::StrCat(testing::TempDir(), "/codes.sqlite3");
  using Mode = SqliteDatabase::Mode;
  ASSERT_OK_AND_ASSIGN(SqliteDatabase database,
                       SqliteDatabase::Open(path, Mode::kReadWriteCreate));
  ASSERT_OK(database.Execute("CREATE TABLE t (a TEXT NOT NULL UNIQUE)"));
  // An empty text without memory is no NULL.
  ASSERT_OK(database.Run("INSERT INTO t VALUES (?)", absl::string_view()));
  // The extended result tells which constraint it was.
  EXPECT_THAT(database.Run("INSERT INTO t VALUES (?)", absl::string_view()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("2067")));
  ASSERT_OK_AND_ASSIGN(SqliteDatabase reader,
                       SqliteDatabase::Open(path, Mode::kReadOnly));
  EXPECT_THAT(reader.Execute("DELETE FROM t"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(path)));
  ASSERT_OK(reader.Execute("PRAGMA busy_timeout = 0"));
  ASSERT_OK(database.Execute("BEGIN EXCLUSIVE"));
  EXPECT_THAT(reader.QueryInt("SELECT count(*) FROM t"),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(SqliteDatabase::Open(path + ".none", Mode::kReadOnly),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace causeway
