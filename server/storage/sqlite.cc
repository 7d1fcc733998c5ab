// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/sqlite.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr int kBusyTimeoutMilliseconds = 5000;

// More than there are statements without an event filter.
constexpr size_t kMostIdle = 64;

absl::StatusCode CodeOfResult(int result) {
  // The low byte is the primary code; the rest gives details.
  switch (result & 0xff) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_CANTOPEN:
      return absl::StatusCode::kNotFound;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_CONSTRAINT:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns the status of the call on `database` that just failed.
absl::Status LastError(sqlite3* database, absl::string_view path) {
  const int result = sqlite3_extended_errcode(database);
  return absl::Status(CodeOfResult(result),
                      absl::StrCat(path, ": ", sqlite3_errmsg(database),
                                   " (SQLite result ", result, ")"));
}

// As LastError, for a call that does not commit, and so has lost nothing if the
// disk has no room for a file beside the database. A commit that fails for this
// reason may have written all of the transaction to the log.
absl::Status LastErrorOfStatement(sqlite3* database, absl::string_view path) {
  const int result = sqlite3_extended_errcode(database);
  const int error = sqlite3_system_errno(database);
  if ((result == SQLITE_IOERR_SHMSIZE && error != EIO) ||
      ((result & 0xff) == SQLITE_CANTOPEN &&
       (error == ENOSPC || error == EDQUOT))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": No space left on device (SQLite result ", result, ")"));
  }
  return LastError(database, path);
}

bool HasLog(const std::string& path) {
  struct stat log;
  return stat(absl::StrCat(path, "-wal").c_str(), &log) == 0 && log.st_size > 0;
}

std::string UriPath(absl::string_view path) {
  return absl::StrReplaceAll(path, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}});
}

}  // namespace

void SqliteStatement::Finalizer::operator()(sqlite3_stmt* statement) const {
  // The result repeats the error of the last Step, which has been reported.
  sqlite3_finalize(statement);
}

void SqliteStatement::Returner::operator()(sqlite3_stmt* statement) const {
  // Ends the statement's hold on the database.
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  Idle::mapped_type done(statement);
  if (idle->size() >= kMostIdle) idle->clear();
  idle->try_emplace(sqlite3_sql(statement), std::move(done));
}

absl::StatusOr<bool> SqliteStatement::Step() {
  switch (sqlite3_step(statement_.get())) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return LastErrorOfStatement(sqlite3_db_handle(statement_.get()), path_);
  }
}

absl::Status SqliteStatement::Run() {
  while (true) {
    ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double SqliteStatement::Double(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}

std::string SqliteStatement::Text(int column) const {
  // Get the pointer first: asking for the size may not convert the value.
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return std::string(static_cast<const char*>(data),
                     static_cast<size_t>(data == nullptr ? 0 : size));
}

bool SqliteStatement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

void SqliteStatement::BindInt(int index, int64_t value) {
  CHECK_EQ(sqlite3_bind_int64(statement_.get(), index, value), SQLITE_OK);
}

void SqliteStatement::Bind(int index, double value) {
  CHECK_EQ(sqlite3_bind_double(statement_.get(), index, value), SQLITE_OK);
}

void SqliteStatement::Bind(int index, absl::string_view text) {
  // A null pointer would bind NULL instead of the empty string.
  const char* data = text.data() == nullptr ? "" : text.data();
  CHECK_EQ(sqlite3_bind_text64(statement_.get(), index, data, text.size(),
                               SQLITE_TRANSIENT, SQLITE_UTF8),
           SQLITE_OK);
}

void SqliteDatabase::Closer::operator()(sqlite3* database) const {
  // Waits for statements that still exist, instead of failing because of them.
  sqlite3_close_v2(database);
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::Open(const std::string& path,
                                                    Mode mode) {
  SqliteDatabase database(path, mode);
  RETURN_IF_ERROR(database.Reopen());
  return database;
}

absl::Status SqliteDatabase::Reopen() {
  idle_ = std::make_shared<SqliteStatement::Idle>();
  database_.reset();
  int flags = mode_ == Mode::kReadWriteCreate
                  ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                  : SQLITE_OPEN_READONLY;
  std::string name = path_;
  const char* vfs = nullptr;
  if (mode_ == Mode::kReadOnlyUnused) {
    if (HasLog(path_)) {
      vfs = "unix-none";
    } else {
      name = absl::StrCat("file:", UriPath(path_), "?immutable=1");
      flags |= SQLITE_OPEN_URI;
    }
  }
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2(name.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, vfs);
  CHECK(handle != nullptr) << "out of memory for an SQLite connection";
  database_.reset(handle);
  if (result != SQLITE_OK) return LastError(handle, path_);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMilliseconds);
  // Keep the index of the log in memory, not in a file.
  return vfs == nullptr ? absl::OkStatus()
                        : Execute("PRAGMA locking_mode = EXCLUSIVE");
}

absl::Status SqliteDatabase::CopyTo(const std::string& path) {
  ASSIGN_OR_RETURN(SqliteDatabase copy, Open(path, Mode::kReadWriteCreate));
  sqlite3_backup* const backup = sqlite3_backup_init(
      copy.database_.get(), "main", database_.get(), "main");
  if (backup == nullptr) return LastError(copy.database_.get(), path);
  sqlite3_backup_step(backup, -1);
  // Repeats the error of the step, if it had one.
  if (sqlite3_backup_finish(backup) == SQLITE_OK) return absl::OkStatus();
  return LastError(copy.database_.get(), path);
}

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) !=
      SQLITE_OK) {
    return LastError(database_.get(), path_);
  }
  return absl::OkStatus();
}

absl::StatusOr<SqliteStatement> SqliteDatabase::PrepareUnbound(
    absl::string_view sql) {
  if (auto idle = idle_->extract(sql); !idle.empty()) {
    return SqliteStatement(idle.mapped().release(), idle_, path_);
  }
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(
          database_.get(), sql.data(), static_cast<int>(sql.size()),
          SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return LastErrorOfStatement(database_.get(), path_);
  }
  return SqliteStatement(statement, idle_, path_);
}

absl::StatusOr<std::string> SqliteDatabase::RecordChanges(
    bool (*is_left_out)(absl::string_view table),
    absl::FunctionRef<absl::Status()> body) {
  sqlite3_session* session = nullptr;
  if (sqlite3session_create(database_.get(), "main", &session) != SQLITE_OK) {
    return LastError(database_.get(), path_);
  }
  const std::unique_ptr<sqlite3_session, decltype(&sqlite3session_delete)>
      owner(session, sqlite3session_delete);
  sqlite3session_table_filter(
      session,
      [](void* is_left_out, const char* table) {
        return reinterpret_cast<bool (*)(absl::string_view)>(is_left_out)(table)
                   ? 0
                   : 1;
      },
      reinterpret_cast<void*>(is_left_out));
  if (sqlite3session_attach(session, nullptr) != SQLITE_OK) {
    return LastError(database_.get(), path_);
  }
  RETURN_IF_ERROR(body());
  int bytes = 0;
  void* data = nullptr;
  if (const int result = sqlite3session_changeset(session, &bytes, &data);
      result != SQLITE_OK) {
    return absl::InternalError(absl::StrCat(
        "SQLite does not say what was changed: ", sqlite3_errstr(result)));
  }
  std::string changes(static_cast<const char*>(data),
                      static_cast<size_t>(bytes));
  sqlite3_free(data);
  return changes;
}

absl::Status SqliteDatabase::ApplyChanges(absl::string_view changes) {
  // On a conflict, a row is not as it was recorded.
  const auto abort = [](void*, int, sqlite3_changeset_iter*) {
    return SQLITE_CHANGESET_ABORT;
  };
  const int result = sqlite3changeset_apply(
      database_.get(), static_cast<int>(changes.size()),
      const_cast<char*>(changes.data()), nullptr, abort, nullptr);
  if (result == SQLITE_OK) return absl::OkStatus();
  if (result == SQLITE_ABORT) {
    return absl::AlreadyExistsError(absl::StrCat(
        path_, ": a row differs from the one that was changed at the source"));
  }
  if ((result & 0xff) == SQLITE_CORRUPT) {
    return absl::DataLossError("the recorded changes are damaged");
  }
  return LastError(database_.get(), path_);
}

absl::StatusOr<int64_t> SqliteDatabase::QueryInt(absl::string_view sql) {
  ASSIGN_OR_RETURN(SqliteStatement query, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, query.Step());
  CHECK(row) << "a query without a row: " << sql;
  return query.Int(0);
}

bool SqliteDatabase::in_transaction() const {
  return sqlite3_get_autocommit(database_.get()) == 0;
}

}  // namespace causeway
