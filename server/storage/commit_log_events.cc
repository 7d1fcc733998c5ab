// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of CommitLog that reads events.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "server/storage/commit_log.h"

namespace causeway {
namespace {

// The rows that a search for events reads while it holds the lock, in about a
// millisecond.
constexpr uint64_t kEventSearch = 4096;

// Reads a row of id, time, kind, island_id, text.
v1::Event EventOf(SqliteStatement& row) {
  v1::Event event;
  event.set_id(row.Uint(0));
  *event.mutable_time() = ToTimestamp(absl::FromUnixMicros(row.Int(1)));
  event.set_kind(row.Text(2));
  event.set_island_id(row.Text(3));
  event.set_text(row.Text(4));
  event.set_severity(SeverityOf(event.kind()));
  return event;
}

bool IsWanted(SqliteStatement& row, const EventFilter& filter) {
  return filter.Wants(row.Text(2), absl::FromUnixMicros(row.Int(1)));
}

// Begins a search for events with ids between `after` and `before`. For one
// kind it reads only events of that kind; of several kinds, SQLite would read
// and sort all.
absl::StatusOr<SqliteStatement> SearchEvents(uint64_t after, uint64_t before,
                                             absl::string_view order,
                                             const EventFilter& filter,
                                             SqliteDatabase& database) {
  const bool has_one_kind = filter.kinds.size() == 1;
  const std::string sql = absl::StrCat(
      "SELECT id, time, kind, island_id, text FROM events"
      " WHERE id > ?1 AND id < ?2",
      has_one_kind ? " AND kind = ?4" : "", " ORDER BY id ", order,
      " LIMIT ?3");
  if (!has_one_kind) {
    return database.Prepare(sql, SqlLimit(after), SqlLimit(before),
                            SqlLimit(kEventSearch));
  }
  return database.Prepare(sql, SqlLimit(after), SqlLimit(before),
                          SqlLimit(kEventSearch), filter.kinds[0]);
}

}  // namespace

absl::StatusOr<uint64_t> CommitLog::NewestEvent() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const int64_t newest,
                   database_.QueryInt("SELECT ifnull(max(id), 0) FROM events"));
  return static_cast<uint64_t>(newest);
}

absl::StatusOr<std::vector<v1::Event>> CommitLog::NewestEvents(
    uint64_t after_id, uint64_t most, const EventFilter& filter) {
  std::vector<v1::Event> events;
  uint64_t before = std::numeric_limits<uint64_t>::max();
  uint64_t rows = kEventSearch;
  while (rows == kEventSearch && events.size() < most) {
    rows = 0;
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement query,
                     SearchEvents(after_id, before, "DESC", filter, database_));
    while (events.size() < most) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      ++rows;
      before = query.Uint(0);
      if (IsWanted(query, filter)) events.push_back(EventOf(query));
    }
  }
  std::reverse(events.begin(), events.end());
  return events;
}

absl::StatusOr<std::vector<v1::Event>> CommitLog::EventsAfter(
    uint64_t after_id, uint64_t limit, const EventFilter& filter) {
  std::vector<v1::Event> events;
  uint64_t bytes = 0;
  const auto is_full = [&] {
    return events.size() >= limit || bytes >= kEventPageBytes;
  };
  uint64_t rows = kEventSearch;
  while (rows == kEventSearch && !is_full()) {
    rows = 0;
    absl::MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(
        SqliteStatement query,
        SearchEvents(after_id, std::numeric_limits<uint64_t>::max(), "ASC",
                     filter, database_));
    while (!is_full()) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      ++rows;
      after_id = query.Uint(0);
      if (!IsWanted(query, filter)) continue;
      events.push_back(EventOf(query));
      bytes += events.back().text().size();
    }
  }
  return events;
}

}  // namespace causeway
