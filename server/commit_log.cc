// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/commit_log.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "server/commit_log_schema.h"

namespace causeway {
namespace {

constexpr char kCommitColumns[] =
    "fragment, version, digest, file, update_file, merged_norm, committed_at";

constexpr ContributionFate kFates[] = {
    ContributionFate::kMerged, ContributionFate::kLate,
    ContributionFate::kRefused, ContributionFate::kExpired};

constexpr MemberState kMemberStates[] = {MemberState::kLive, MemberState::kLeft,
                                         MemberState::kEvicted};

absl::string_view MemberStateName(MemberState state) {
  switch (state) {
    case MemberState::kLive:
      return "live";
    case MemberState::kLeft:
      return "left";
    case MemberState::kEvicted:
      return "evicted";
  }
  return "";
}

// The schema's CHECKs leave no other names.
MemberState MemberStateOf(absl::string_view name) {
  for (const MemberState state : kMemberStates) {
    if (name == MemberStateName(state)) return state;
  }
  LOG(FATAL) << "member state " << name;
}

ContributionFate FateOf(absl::string_view name) {
  for (const ContributionFate fate : kFates) {
    if (name == ContributionFateName(fate)) return fate;
  }
  LOG(FATAL) << "contribution fate " << name;
}

// LIMIT takes a signed number.
int64_t Limit(uint64_t limit) {
  return static_cast<int64_t>(
      std::min<uint64_t>(limit, std::numeric_limits<int64_t>::max()));
}

CommitRecord CommitOf(const SqliteStatement& row) {
  CommitRecord commit;
  commit.head.set_fragment(static_cast<uint32_t>(row.Int(0)));
  commit.head.set_version(static_cast<uint64_t>(row.Int(1)));
  commit.head.set_digest(absl::HexStringToBytes(row.Text(2)));
  commit.file = row.Text(3);
  commit.update_file = row.Text(4);
  commit.merged_norm = row.Double(5);
  commit.committed_at = absl::FromUnixMicros(row.Int(6));
  return commit;
}

absl::StatusOr<std::vector<CommitRecord>> Commits(SqliteStatement query) {
  std::vector<CommitRecord> commits;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return commits;
    commits.push_back(CommitOf(query));
  }
}

template <typename Message>
absl::Status ParseText(const std::string& text, absl::string_view what,
                       Message& message) {
  if (google::protobuf::TextFormat::ParseFromString(text, &message)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("the stored ", what, " is unreadable: ", text));
}

std::string PrintText(const google::protobuf::Message& message) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(message, &text));
  return text;
}

}  // namespace

absl::string_view ContributionFateName(ContributionFate fate) {
  switch (fate) {
    case ContributionFate::kMerged:
      return "merged";
    case ContributionFate::kLate:
      return "late";
    case ContributionFate::kRefused:
      return "refused";
    case ContributionFate::kExpired:
      return "expired";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::Connect(
    const std::string& path, SqliteDatabase::Mode mode) {
  ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path, mode));
  const bool read_only = mode == SqliteDatabase::Mode::kReadOnly;
  std::unique_ptr<CommitLog> log(
      new CommitLog(std::move(database), path, read_only));
  absl::MutexLock lock(&log->mutex_);
  RETURN_IF_ERROR(log->PrepareSchema());
  return log;
}

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::Open(
    const std::string& path) {
  return Connect(path, SqliteDatabase::Mode::kReadWriteCreate);
}

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::OpenReadOnly(
    const std::string& path) {
  return Connect(path, SqliteDatabase::Mode::kReadOnly);
}

absl::Status CommitLog::PrepareSchema() {
  ASSIGN_OR_RETURN(const int64_t version,
                   database_.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application,
                   database_.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t objects,
                   database_.QueryInt("SELECT count(*) FROM sqlite_schema"));
  const bool empty = objects == 0 && version == 0;
  if (!empty && application != kCommitLogApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is the database of another program"));
  }
  if (version > kCommitLogSchemaVersion) {
    return absl::FailedPreconditionError(absl::Substitute(
        "$0 was written by a newer version of Causeway (schema $1, this one "
        "knows up to $2): use that version",
        path_, version, kCommitLogSchemaVersion));
  }
  if (read_only_) {
    if (!empty) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(path_, " has no run yet"));
  }
  RETURN_IF_ERROR(database_.Execute(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  if (!empty) return absl::OkStatus();
  return TransactLocked([&] {
    return database_.Execute(absl::Substitute(
        "$0; PRAGMA application_id = $1; PRAGMA user_version = $2",
        kCommitLogSchema, kCommitLogApplicationId, kCommitLogSchemaVersion));
  });
}

absl::Status CommitLog::TransactLocked(absl::FunctionRef<absl::Status()> body) {
  if (read_only_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is opened for reading only"));
  }
  if (!unknown_outcome_.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     " has an earlier write with outcome unknown; restart the "
                     "coordinator to read what is there: ",
                     unknown_outcome_.message()));
  }
  RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  if (const absl::Status status = body(); !status.ok()) {
    // SQLite has rolled back by itself after some errors.
    if (database_.in_transaction()) {
      if (absl::Status rollback = database_.Execute("ROLLBACK");
          !rollback.ok()) {
        unknown_outcome_ = std::move(rollback);
      }
    }
    return status;
  }
  return CommitLocked();
}

absl::Status CommitLog::CommitLocked() {
  absl::Status status = database_.Execute("COMMIT");
  if (status.ok()) return status;
  const absl::Status rollback = database_.in_transaction()
                                    ? database_.Execute("ROLLBACK")
                                    : absl::OkStatus();
  // With no space left or the lock not granted, the mark that ends the
  // transaction in the log was not written, and a rollback is the end of it.
  // After any other failure, above all of fsync, the mark may or may not be on
  // the disk.
  if (rollback.ok() &&
      (absl::IsResourceExhausted(status) || absl::IsUnavailable(status))) {
    return status;
  }
  unknown_outcome_ = status;
  return absl::Status(
      status.code(),
      absl::StrCat("outcome unknown of a commit to ", status.message()));
}

absl::Status CommitLog::CreateRun(const RunRecord& run, LogBatch& batch) {
  absl::MutexLock lock(&mutex_);
  return TransactLocked([&]() -> absl::Status {
    mutex_.AssertHeld();
    ASSIGN_OR_RETURN(
        SqliteStatement insert,
        database_.Prepare("INSERT INTO run (id, run_id, config, plan,"
                          " created_at) VALUES (1, ?, ?, ?, ?)"));
    insert.Bind(run.run_id, PrintText(run.config), PrintText(run.plan),
                absl::ToUnixMicros(run.created_at));
    absl::Status inserted = insert.Run();
    if (absl::IsAlreadyExists(inserted)) {
      return absl::AlreadyExistsError(absl::StrCat(path_, " holds a run"));
    }
    RETURN_IF_ERROR(inserted);
    return WriteBatch(batch);
  });
}

absl::Status CommitLog::Apply(LogBatch& batch) {
  absl::MutexLock lock(&mutex_);
  return TransactLocked([&] {
    mutex_.AssertHeld();
    return WriteBatch(batch);
  });
}

absl::Status CommitLog::WriteBatch(LogBatch& batch) {
  for (const CommitRecord& commit : batch.commits) {
    RETURN_IF_ERROR(WriteCommit(commit));
  }
  for (const Member& member : batch.members) {
    RETURN_IF_ERROR(WriteMember(member));
  }
  for (const ContributionRecord& contribution : batch.contributions) {
    RETURN_IF_ERROR(WriteContribution(contribution));
  }
  for (EventRecord& event : batch.events) RETURN_IF_ERROR(WriteEvent(event));
  return absl::OkStatus();
}

absl::Status CommitLog::WriteCommit(const CommitRecord& commit) {
  const v1::FragmentHead& head = commit.head;
  ASSIGN_OR_RETURN(
      SqliteStatement newest,
      database_.Prepare("SELECT ifnull(max(version) + 1, 0) FROM commits"
                        " WHERE fragment = ?"));
  newest.Bind(head.fragment());
  RETURN_IF_ERROR(newest.Step().status());
  if (newest.Int(0) != static_cast<int64_t>(head.version())) {
    return absl::FailedPreconditionError(
        absl::Substitute("fragment $0: version $1 is offered, $2 is the next",
                         head.fragment(), head.version(), newest.Int(0)));
  }
  ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database_.Prepare(absl::StrCat("INSERT INTO commits (", kCommitColumns,
                                     ") VALUES (?, ?, ?, ?, ?, ?, ?)")));
  insert.Bind(head.fragment(), head.version(), DigestToHex(head.digest()),
              commit.file, commit.update_file, commit.merged_norm,
              absl::ToUnixMicros(commit.committed_at));
  return insert.Run();
}

absl::Status CommitLog::WriteMember(const Member& member) {
  ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database_.Prepare(
          "INSERT INTO members (island_id, incarnation, instance_id, state,"
          " description, joined_at, ended_at, reason, shard, first_versions)"
          " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
          " ON CONFLICT DO UPDATE SET state = excluded.state,"
          " ended_at = excluded.ended_at, reason = excluded.reason,"
          " first_versions = excluded.first_versions"));
  const auto bind = [&](const auto& ended_at) {
    insert.Bind(member.island_id, member.incarnation, member.instance_id,
                MemberStateName(member.state), member.description,
                absl::ToUnixMicros(member.joined_at), ended_at, member.reason,
                member.shard,
                absl::StrJoin(member.first_contribution_version, ","));
  };
  if (member.state == MemberState::kLive) {
    bind(nullptr);
  } else {
    bind(absl::ToUnixMicros(member.ended_at));
  }
  return insert.Run();
}

absl::Status CommitLog::WriteContribution(
    const ContributionRecord& contribution) {
  std::string sql =
      "INSERT INTO contributions (fragment, base_version, island_id,"
      " incarnation, fate, tokens, inner_steps, weight, at)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
  const bool merged = contribution.fate == ContributionFate::kMerged;
  if (!merged) sql += " ON CONFLICT DO NOTHING";
  ASSIGN_OR_RETURN(SqliteStatement insert, database_.Prepare(sql));
  insert.Bind(contribution.fragment, contribution.base_version,
              contribution.island_id, contribution.incarnation,
              ContributionFateName(contribution.fate), contribution.tokens,
              contribution.inner_steps, contribution.weight,
              absl::ToUnixMicros(contribution.at));
  absl::Status status = insert.Run();
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(absl::Substitute(
        "the contribution of $0 (incarnation $1) to fragment $2 version $3 "
        "has been merged before",
        contribution.island_id, contribution.incarnation, contribution.fragment,
        contribution.base_version));
  }
  return status;
}

absl::Status CommitLog::WriteEvent(EventRecord& event) {
  ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database_.Prepare("INSERT INTO events (id, time, kind, island_id, text)"
                        " VALUES ((SELECT ifnull(max(id), 0) + 1 FROM events),"
                        " ?, ?, ?, ?) RETURNING id"));
  insert.Bind(absl::ToUnixMicros(event.time), event.kind, event.island_id,
              event.text);
  RETURN_IF_ERROR(insert.Step().status());
  event.id = static_cast<uint64_t>(insert.Int(0));
  return insert.Run();
}

absl::StatusOr<RunRecord> CommitLog::LoadRun() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT run_id, config, plan, created_at FROM run"));
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return absl::NotFoundError(absl::StrCat(path_, " has no run yet"));
  RunRecord run;
  run.run_id = query.Text(0);
  RETURN_IF_ERROR(ParseText(query.Text(1), "configuration", run.config));
  RETURN_IF_ERROR(ParseText(query.Text(2), "fragment plan", run.plan));
  run.created_at = absl::FromUnixMicros(query.Int(3));
  return run;
}

absl::StatusOr<std::vector<CommitRecord>> CommitLog::Heads() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare(absl::StrCat(
          "SELECT ", kCommitColumns,
          " FROM commits AS outer_commits WHERE version ="
          " (SELECT max(version) FROM commits"
          "  WHERE fragment = outer_commits.fragment) ORDER BY fragment")));
  return Commits(std::move(query));
}

absl::StatusOr<std::vector<CommitRecord>> CommitLog::History(uint32_t fragment,
                                                             uint64_t limit) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare(absl::StrCat("SELECT ", kCommitColumns,
                                     " FROM commits WHERE fragment = ?"
                                     " ORDER BY version DESC LIMIT ?")));
  query.Bind(fragment, Limit(limit));
  return Commits(std::move(query));
}

absl::StatusOr<CommitRecord> CommitLog::FindCommit(uint32_t fragment,
                                                   uint64_t version) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement query,
                   database_.Prepare(absl::StrCat(
                       "SELECT ", kCommitColumns,
                       " FROM commits WHERE fragment = ? AND version = ?")));
  query.Bind(fragment, version);
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) {
    return absl::NotFoundError(absl::Substitute(
        "fragment $0 has no committed version $1", fragment, version));
  }
  return CommitOf(query);
}

absl::StatusOr<std::vector<Member>> CommitLog::Members() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare(
          "SELECT island_id, incarnation, instance_id, state,"
          " description, joined_at, ended_at, reason, shard, first_versions,"
          " (SELECT count(*) FROM contributions AS c"
          "  WHERE c.island_id = m.island_id"
          "  AND c.incarnation = m.incarnation AND c.fate = 'merged'),"
          " (SELECT ifnull(sum(tokens), 0) FROM contributions AS c"
          "  WHERE c.island_id = m.island_id"
          "  AND c.incarnation = m.incarnation AND c.fate = 'merged')"
          " FROM members AS m WHERE incarnation ="
          " (SELECT max(incarnation) FROM members"
          "  WHERE island_id = m.island_id) ORDER BY island_id"));
  std::vector<Member> members;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return members;
    Member member;
    member.island_id = query.Text(0);
    member.incarnation = static_cast<uint64_t>(query.Int(1));
    member.instance_id = static_cast<uint64_t>(query.Int(2));
    member.state = MemberStateOf(query.Text(3));
    member.description = query.Text(4);
    member.joined_at = absl::FromUnixMicros(query.Int(5));
    if (!query.IsNull(6)) member.ended_at = absl::FromUnixMicros(query.Int(6));
    member.reason = query.Text(7);
    member.shard = static_cast<uint32_t>(query.Int(8));
    for (const absl::string_view version :
         absl::StrSplit(query.Text(9), ',', absl::SkipEmpty())) {
      CHECK(absl::SimpleAtoi(version,
                             &member.first_contribution_version.emplace_back()))
          << version;
    }
    member.contributions_merged = static_cast<uint64_t>(query.Int(10));
    member.tokens_merged = static_cast<uint64_t>(query.Int(11));
    members.push_back(std::move(member));
  }
}

absl::StatusOr<std::vector<ContributionRecord>> CommitLog::MergedContributions(
    uint32_t fragment, uint64_t base_version) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare(
          "SELECT island_id, incarnation, tokens, inner_steps, weight, at"
          " FROM contributions WHERE fragment = ? AND base_version = ?"
          " AND fate = 'merged' ORDER BY island_id, incarnation"));
  query.Bind(fragment, base_version);
  std::vector<ContributionRecord> contributions;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return contributions;
    contributions.push_back({.fragment = fragment,
                             .base_version = base_version,
                             .island_id = query.Text(0),
                             .incarnation = static_cast<uint64_t>(query.Int(1)),
                             .tokens = static_cast<uint64_t>(query.Int(2)),
                             .inner_steps = static_cast<uint64_t>(query.Int(3)),
                             .weight = query.Double(4),
                             .fate = ContributionFate::kMerged,
                             .at = absl::FromUnixMicros(query.Int(5))});
  }
}

absl::StatusOr<std::vector<LedgerSum>> CommitLog::LedgerSums() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT fragment, fate, count(*), sum(tokens)"
                        " FROM contributions GROUP BY fragment, fate"
                        " ORDER BY fragment, fate"));
  std::vector<LedgerSum> sums;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return sums;
    sums.push_back({.fragment = static_cast<uint32_t>(query.Int(0)),
                    .fate = FateOf(query.Text(1)),
                    .contributions = static_cast<uint64_t>(query.Int(2)),
                    .tokens = static_cast<uint64_t>(query.Int(3))});
  }
}

absl::StatusOr<std::vector<EventRecord>> CommitLog::EventsAfter(
    uint64_t after_id, uint64_t limit) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT id, time, kind, island_id, text FROM events"
                        " WHERE id > ? ORDER BY id LIMIT ?"));
  query.Bind(Limit(after_id), Limit(limit));
  std::vector<EventRecord> events;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return events;
    events.push_back({.id = static_cast<uint64_t>(query.Int(0)),
                      .time = absl::FromUnixMicros(query.Int(1)),
                      .kind = query.Text(2),
                      .island_id = query.Text(3),
                      .text = query.Text(4)});
  }
}

}  // namespace causeway
