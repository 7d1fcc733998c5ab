// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/sqlite.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
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

TEST(Sqlite, ErrorsHaveTheCodeOfTheirCause) {
  const std::string path = absl::StrCat(testing::TempDir(), "/codes.sqlite3");
  using Mode = SqliteDatabase::Mode;
  ASSERT_OK_AND_ASSIGN(SqliteDatabase database,
                       SqliteDatabase::Open(path, Mode::kReadWriteCreate));
  ASSERT_OK(database.Execute("CREATE TABLE t (a TEXT NOT NULL UNIQUE)"));
  // An empty text without memory is no NULL.
  ASSERT_OK(database.Run("INSERT INTO t VALUES (?)", absl::string_view()));
  // The extended result names the constraint.
  EXPECT_THAT(database.Run("INSERT INTO t VALUES (?)", absl::string_view()),
              IsAlreadyExists("2067"));
  ASSERT_OK_AND_ASSIGN(SqliteDatabase reader,
                       SqliteDatabase::Open(path, Mode::kReadOnly));
  EXPECT_THAT(reader.Execute("DELETE FROM t"), IsPermissionDenied(path));
  ASSERT_OK(reader.Execute("PRAGMA busy_timeout = 0"));
  ASSERT_OK(database.Execute("BEGIN EXCLUSIVE"));
  EXPECT_THAT(reader.QueryInt("SELECT count(*) FROM t"), IsUnavailable());
  EXPECT_THAT(SqliteDatabase::Open(path + ".none", Mode::kReadOnly),
              IsNotFound());
}

TEST(Sqlite, AStatementThatIsUsedAgainRemembersNothing) {
  const std::string path = absl::StrCat(testing::TempDir(), "/again.sqlite3");
  ASSERT_OK_AND_ASSIGN(
      SqliteDatabase database,
      SqliteDatabase::Open(path, SqliteDatabase::Mode::kReadWriteCreate));
  ASSERT_OK(database.Execute("PRAGMA journal_mode = WAL; CREATE TABLE t (a)"));
  for (const std::optional<int> value : {std::optional(7), {}, {8}}) {
    ASSERT_OK(database.Run("INSERT INTO t VALUES (?)", value));
  }
  constexpr char kValues[] = "SELECT a FROM t WHERE rowid >= ?";
  for (int i = 0; i < 2; ++i) {
    // Use one text twice at once.
    ASSERT_OK_AND_ASSIGN(SqliteStatement all, database.Prepare(kValues, 1));
    ASSERT_OK_AND_ASSIGN(SqliteStatement rest, database.Prepare(kValues, 2));
    EXPECT_THAT(all.Step(), IsOkAndHolds(true));
    EXPECT_EQ(all.Int(0), 7);
    EXPECT_THAT(rest.Step(), IsOkAndHolds(true));
    EXPECT_TRUE(rest.IsNull(0));
    EXPECT_THAT(rest.Step(), IsOkAndHolds(true));
    EXPECT_EQ(rest.Int(0), 8);
    EXPECT_THAT(rest.Step(), IsOkAndHolds(false));
  }
  // A statement that was left in the middle no longer reads the database.
  EXPECT_THAT(database.QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"),
              IsOkAndHolds(0));
  ASSERT_OK(database.Reopen());
  EXPECT_THAT(database.QueryInt("SELECT count(*) FROM t"), IsOkAndHolds(3));
}

TEST(Sqlite, AnUnusedDatabaseIsReadWithoutMakingFiles) {
  using Mode = SqliteDatabase::Mode;
  namespace fs = std::filesystem;
  const fs::path live = fs::path(testing::TempDir()) / "live";
  // The name has characters that are special in URIs.
  const fs::path copy = fs::path(testing::TempDir()) / "copy?x#y%41";
  for (const fs::path& folder : {live, copy}) fs::create_directory(folder);
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(copy)) {
      names.insert(entry.path().filename());
    }
    return names;
  };
  const auto count = [&]() -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(
        SqliteDatabase reader,
        SqliteDatabase::Open(copy / "log.sqlite3", Mode::kReadOnlyUnused));
    return reader.QueryInt("SELECT count(*) FROM t");
  };
  {
    ASSERT_OK_AND_ASSIGN(
        SqliteDatabase database,
        SqliteDatabase::Open(live / "log.sqlite3", Mode::kReadWriteCreate));
    ASSERT_OK(
        database.Execute("PRAGMA journal_mode = WAL;"
                         "CREATE TABLE t (a); INSERT INTO t VALUES (1)"));
    // Copy the files of a killed process, without the index.
    for (const char* name : {"log.sqlite3", "log.sqlite3-wal"}) {
      fs::copy(live / name, copy / name);
    }
  }
  EXPECT_THAT(count(), IsOkAndHolds(1));
  EXPECT_EQ(files(), (std::set<std::string>{"log.sqlite3", "log.sqlite3-wal"}));
  fs::remove(copy / "log.sqlite3-wal");
  fs::copy(live / "log.sqlite3", copy / "log.sqlite3",
           fs::copy_options::overwrite_existing);
  EXPECT_THAT(count(), IsOkAndHolds(1));
  EXPECT_EQ(files(), std::set<std::string>{"log.sqlite3"});
}

}  // namespace
}  // namespace causeway
