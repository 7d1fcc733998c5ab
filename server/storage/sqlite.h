// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A thin owner of SQLite connections and statements that reports results as
// Status. Not thread-safe; the owner of a SqliteDatabase serializes calls.
//
//   ASSIGN_OR_RETURN(SqliteStatement query,
//                    database.Prepare("SELECT id, text FROM events"
//                                     " WHERE id > ? LIMIT ?"));
//   query.Bind(after, limit);
//   while (true) {
//     ASSIGN_OR_RETURN(const bool row, query.Step());
//     if (!row) break;
//     Use(query.Int(0), query.Text(1));
//   }
//
// Error codes, from SQLite's result codes: FULL RESOURCE_EXHAUSTED; BUSY,
// LOCKED UNAVAILABLE; IOERR, CORRUPT, NOTADB DATA_LOSS; CANTOPEN NOT_FOUND;
// READONLY, PERM, AUTH PERMISSION_DENIED; CONSTRAINT ALREADY_EXISTS; everything
// else INTERNAL.
#ifndef SERVER_STORAGE_SQLITE_H_
#define SERVER_STORAGE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sqlite3.h"

namespace causeway {

// A prepared statement; must not outlive its database.
class SqliteStatement {
 public:
  // Binds the parameters, in order. Call before the first Step.
  template <typename... Values>
  void Bind(const Values&... values) {
    int index = 0;
    (BindOne(++index, values), ...);
  }

  // Moves to the next row. Returns true if there is one, false at the end.
  absl::StatusOr<bool> Step();

  // Runs a statement and ignores its rows.
  absl::Status Run();

  // The columns of the current row, counted from 0.
  int64_t Int(int column) const;
  double Double(int column) const;
  // Reads TEXT or BLOB.
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };

  SqliteStatement(sqlite3_stmt* statement, std::string path)
      : statement_(statement), path_(std::move(path)) {}

  void BindOne(int index, int64_t value);
  void BindOne(int index, uint64_t value) {
    BindOne(index, static_cast<int64_t>(value));
  }
  void BindOne(int index, uint32_t value) {
    BindOne(index, static_cast<int64_t>(value));
  }
  void BindOne(int index, int value) {
    BindOne(index, static_cast<int64_t>(value));
  }
  void BindOne(int index, double value);
  void BindOne(int index, absl::string_view text);
  void BindOne(int index, const std::string& text) {
    BindOne(index, absl::string_view(text));
  }
  void BindOne(int index, const char* text) {
    BindOne(index, absl::string_view(text));
  }
  void BindOne(int index, std::nullptr_t);

  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  std::string path_;
};

class SqliteDatabase {
 public:
  enum class Mode { kReadWriteCreate, kReadOnly };

  // Where another process holds a lock, calls wait up to five seconds.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path,
                                             Mode mode);

  // Closes the file and opens it anew, so that only the file's content counts,
  // not what this connection remembers. All statements must be gone. After an
  // error every call fails until Reopen succeeds.
  absl::Status Reopen();

  // Runs one or more statements that have neither parameters nor rows.
  absl::Status Execute(const std::string& sql);

  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql);

  // Returns the only value of a query with one row and one column.
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);

  // Whether BEGIN has been run and neither COMMIT nor ROLLBACK has.
  bool in_transaction() const;

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };

  SqliteDatabase(std::string path, Mode mode)
      : path_(std::move(path)), mode_(mode) {}

  std::unique_ptr<sqlite3, Closer> database_;
  std::string path_;
  Mode mode_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_SQLITE_H_
