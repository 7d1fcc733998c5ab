// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A thin owner of SQLite connections and statements that reports results as
// Status. Not thread-safe; the owner of a SqliteDatabase serializes calls. A
// database keeps finished statements, because compiling one takes longer than
// inserting a row with it.
//
//   ASSIGN_OR_RETURN(
//       const std::vector<std::string> texts,
//       database.ReadRows([](const SqliteStatement& row) { return row.Text(0);
//       },
//                         "SELECT text FROM events WHERE id > ?", after));
//
// Error codes, from SQLite's result codes: FULL, and no room for a file beside
// the database, RESOURCE_EXHAUSTED; BUSY, LOCKED UNAVAILABLE; IOERR, CORRUPT,
// NOTADB DATA_LOSS; CANTOPEN NOT_FOUND; READONLY, PERM, AUTH PERMISSION_DENIED;
// CONSTRAINT ALREADY_EXISTS; everything else INTERNAL.
#ifndef SERVER_STORAGE_SQLITE_H_
#define SERVER_STORAGE_SQLITE_H_

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
// The header of the session extension, which Debian's SQLite has, needs these.
#define SQLITE_ENABLE_SESSION 1
#define SQLITE_ENABLE_PREUPDATE_HOOK 1
#include "sqlite3.h"

namespace causeway {

// A prepared statement; must not outlive its database.
class SqliteStatement {
 public:
  // Moves to the next row. Returns true if there is one, false at the end.
  absl::StatusOr<bool> Step();

  // Runs a statement and ignores its rows.
  absl::Status Run();

  // The columns of the current row, counted from 0.
  int64_t Int(int column) const;
  uint64_t Uint(int column) const { return static_cast<uint64_t>(Int(column)); }
  double Double(int column) const;
  // Reads TEXT or BLOB.
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  // Unused statements, by their text.
  using Idle =
      std::map<absl::string_view, std::unique_ptr<sqlite3_stmt, Finalizer>>;
  struct Returner {
    void operator()(sqlite3_stmt* statement) const;
    std::shared_ptr<Idle> idle;
  };

  SqliteStatement(sqlite3_stmt* statement, std::shared_ptr<Idle> idle,
                  std::string path)
      : statement_(statement, Returner{std::move(idle)}),
        path_(std::move(path)) {}

  // An empty optional is NULL.
  void Bind(int index, std::integral auto value) {
    BindInt(index, static_cast<int64_t>(value));
  }
  void Bind(int index, double value);
  void Bind(int index, absl::string_view text);
  template <typename Value>
  void Bind(int index, const std::optional<Value>& value) {
    // Every parameter is NULL at first.
    if (value.has_value()) Bind(index, *value);
  }
  void BindInt(int index, int64_t value);

  std::unique_ptr<sqlite3_stmt, Returner> statement_;
  std::string path_;
};

// Clamps a number to the range of LIMIT and of row ids, which are signed.
inline int64_t SqlLimit(uint64_t number) {
  return static_cast<int64_t>(
      std::min<uint64_t>(number, std::numeric_limits<int64_t>::max()));
}

class SqliteDatabase {
 public:
  enum class Mode {
    kReadWriteCreate,
    kReadOnly,
    // Reads a database that no process has open, in a directory that this
    // process cannot write to: takes no locks and makes no files.
    kReadOnlyUnused,
  };

  // If another process holds a lock, calls wait up to five seconds.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path,
                                             Mode mode);

  // Closes the file and opens it again, without this connection's caches. All
  // statements must be gone. After an error every call fails until Reopen
  // succeeds.
  absl::Status Reopen();

  // Writes everything that this connection reads to a database at `path`,
  // replacing its content. Works even if this database's file was removed.
  absl::Status CopyTo(const std::string& path);

  // Runs one or more statements that have neither parameters nor rows.
  absl::Status Execute(const std::string& sql);

  // Prepares a statement and binds its parameters, in order.
  template <typename... Values>
  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql,
                                          const Values&... values) {
    ASSIGN_OR_RETURN(SqliteStatement statement, PrepareUnbound(sql));
    [[maybe_unused]] int index = 0;
    (statement.Bind(++index, values), ...);
    return statement;
  }

  // Runs a statement and ignores its rows.
  template <typename... Values>
  absl::Status Run(absl::string_view sql, const Values&... values) {
    ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql, values...));
    return statement.Run();
  }

  // Returns the results of `read` for each row of a query.
  template <typename Read, typename... Values,
            typename Row = std::invoke_result_t<Read, const SqliteStatement&>>
  absl::StatusOr<std::vector<Row>> ReadRows(Read read, absl::string_view sql,
                                            const Values&... values) {
    ASSIGN_OR_RETURN(SqliteStatement query, Prepare(sql, values...));
    std::vector<Row> rows;
    while (true) {
      ASSIGN_OR_RETURN(const bool has_row, query.Step());
      if (!has_row) return rows;
      rows.push_back(read(query));
    }
  }

  // Runs `body`, and returns its changes as a changeset of SQLite's session
  // extension; empty if there are none. Leaves out tables whose names
  // `is_left_out` accepts, and tables without a primary key.
  absl::StatusOr<std::string> RecordChanges(
      bool (*is_left_out)(absl::string_view table),
      absl::FunctionRef<absl::Status()> body);

  // Applies recorded changes to this database, all or none.
  //   ALREADY_EXISTS  A row differs from the database where the changes were
  //                   recorded.
  //   DATA_LOSS       The changeset is damaged.
  absl::Status ApplyChanges(absl::string_view changes);

  // Returns the only value of a query with one row and one column.
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);

  bool in_transaction() const;

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };

  SqliteDatabase(std::string path, Mode mode)
      : path_(std::move(path)), mode_(mode) {}

  absl::StatusOr<SqliteStatement> PrepareUnbound(absl::string_view sql);

  std::unique_ptr<sqlite3, Closer> database_;
  std::shared_ptr<SqliteStatement::Idle> idle_;
  std::string path_;
  Mode mode_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_SQLITE_H_
