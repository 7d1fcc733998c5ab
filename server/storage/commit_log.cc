// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/commit_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "server/rules/token_ledger.h"
#include "server/storage/commit_log_schema.h"

namespace causeway {
namespace {

std::string Chain(absl::string_view hash, uint64_t epoch,
                  absl::string_view rows) {
  return Digest128(absl::StrCat(hash, "/", epoch, "/", rows));
}

bool TellsOfDirectory(absl::string_view table) {
  return absl::c_linear_search(kCommitLogOwnTables, table);
}

std::string PrintText(const google::protobuf::Message& message) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(message, &text));
  return text;
}

absl::Status Write(const CommitRecord& commit, SqliteDatabase& database) {
  const v1::FragmentHead& head = commit.head;
  ASSIGN_OR_RETURN(
      SqliteStatement newest,
      database.Prepare("SELECT ifnull(max(version) + 1, 0) FROM commits"
                       " WHERE fragment = ?",
                       head.fragment()));
  RETURN_IF_ERROR(newest.Step().status());
  if (newest.Int(0) != static_cast<int64_t>(head.version())) {
    return absl::FailedPreconditionError(
        absl::Substitute("fragment $0: version $1 is offered, $2 is the next",
                         head.fragment(), head.version(), newest.Int(0)));
  }
  return database.Run(
      absl::StrCat("INSERT INTO commits (", kCommitLogCommitColumns,
                   ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      head.fragment(), head.version(), DigestToHex(head.digest()),
      commit.update_file, commit.merged_norm,
      absl::ToUnixMicros(commit.committed_at), commit.participation.live(),
      commit.participation.contributing(), commit.participation.merged());
}

absl::Status Write(const SnapshotRecord& snapshot, SqliteDatabase& database) {
  return database.Run(
      "INSERT INTO snapshots (fragment, version, file) VALUES (?, ?, ?)"
      " ON CONFLICT DO UPDATE SET file = excluded.file",
      snapshot.head.fragment(), snapshot.head.version(), snapshot.file);
}

absl::Status Write(const Member& member, SqliteDatabase& database) {
  return database.Run(
      "INSERT INTO members (island_id, incarnation, instance_id, state,"
      " description, joined_at, ended_at, reason, shard, first_versions,"
      " draining) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
      " ON CONFLICT DO UPDATE SET state = excluded.state,"
      " ended_at = excluded.ended_at, reason = excluded.reason,"
      " first_versions = excluded.first_versions,"
      " draining = excluded.draining",
      member.island_id, member.incarnation, member.instance_id,
      absl::AsciiStrToLower(v1::IslandStatus::State_Name(member.state)),
      member.description, absl::ToUnixMicros(member.joined_at),
      member.state == v1::IslandStatus::LIVE
          ? std::nullopt
          : std::optional(absl::ToUnixMicros(member.ended_at)),
      member.reason, member.place,
      absl::StrJoin(member.first_contribution_version, ","), member.draining);
}

absl::Status Write(const ContributionRecord& contribution,
                   SqliteDatabase& database) {
  std::string sql =
      "INSERT INTO contributions (fragment, base_version, island_id,"
      " incarnation, fate, tokens, inner_steps, weight, norm, digest, at,"
      " restored_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  const bool merged = contribution.fate != ContributionFate::kLate;
  if (!merged) sql += " ON CONFLICT DO NOTHING";
  ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.Prepare(
          sql, contribution.fragment, contribution.base_version,
          contribution.island_id, contribution.incarnation,
          ContributionFateName(contribution.fate), contribution.tokens,
          contribution.inner_steps, contribution.weight, contribution.norm,
          DigestToHex(contribution.digest), absl::ToUnixMicros(contribution.at),
          contribution.restored_tokens));
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

absl::Status Write(const AccountRecord& account, SqliteDatabase& database) {
  return database.Run(
      "INSERT INTO accounts (island_id, incarnation, process_tokens,"
      " reported) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
      " process_tokens = excluded.process_tokens,"
      " reported = excluded.reported",
      account.key.island_id, account.key.incarnation, account.process_tokens,
      absl::StrJoin(account.reported, ","));
}

absl::Status Write(const QuarantineEntry& entry, SqliteDatabase& database) {
  return database.Run(
      "INSERT INTO quarantine (id, state, header, norm, reason, admissible,"
      " quarantined_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
      " ON CONFLICT DO UPDATE SET state = excluded.state,"
      " reason = excluded.reason, admissible = excluded.admissible",
      entry.id,
      absl::AsciiStrToLower(
          v1::QuarantinedContribution::State_Name(entry.state)),
      PrintText(entry.header),
      std::isfinite(entry.norm) ? std::optional(entry.norm) : std::nullopt,
      entry.reason, entry.admissible, absl::ToUnixMicros(entry.quarantined_at));
}

absl::Status Write(const RunFlags& flags, SqliteDatabase& database) {
  return database.Run(
      "UPDATE run SET started = ?, paused = ?, data_digest = ?,"
      " data_accepted = ?",
      flags.started,
      flags.paused ? std::optional(flags.pause_reason) : std::nullopt,
      DigestToHex(flags.data_digest), flags.data_accepted);
}

absl::Status WritePoint(absl::string_view series, uint64_t version, double loss,
                        const google::protobuf::Timestamp& time,
                        const google::protobuf::Message& point,
                        SqliteDatabase& database) {
  RETURN_IF_ERROR(
      database.Run("INSERT INTO history (series, version, time, loss, point)"
                   " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                   series, version, absl::ToUnixMicros(ToTime(time)), loss,
                   PrintText(point)));
  ASSIGN_OR_RETURN(
      SqliteStatement points,
      database.Prepare("SELECT count(*) FROM history WHERE series = ?",
                       series));
  RETURN_IF_ERROR(points.Step().status());
  if (points.Uint(0) <= CommitLog::kMostPoints) return absl::OkStatus();
  return database.Run(kCommitLogThinHistory, series,
                      CommitLog::kMostPoints / 8);
}

absl::Status Write(const v1::TrainingPoint& point, SqliteDatabase& database) {
  return WritePoint(kTrainingSeries, point.version(), point.loss(),
                    point.time(), point, database);
}

absl::Status Write(const v1::ValidationPoint& point, SqliteDatabase& database) {
  return WritePoint(kValidationSeries, point.validation().version(),
                    point.validation().loss(), point.time(), point, database);
}

absl::Status Write(const CoordinatorEvent& event, SqliteDatabase& database) {
  return database.Run(
      "INSERT INTO events (id, time, kind, island_id, text)"
      " VALUES ((SELECT ifnull(max(id), 0) + 1 FROM events), ?, ?, ?, ?)",
      absl::ToUnixMicros(event.time), event.kind, event.island_id, event.text);
}

template <typename Records>
absl::Status WriteAll(const Records& records, SqliteDatabase& database) {
  for (const auto& record : records) RETURN_IF_ERROR(Write(record, database));
  return absl::OkStatus();
}

absl::Status WriteBatch(const LogBatch& batch, SqliteDatabase& database) {
  RETURN_IF_ERROR(WriteAll(batch.commits, database));
  RETURN_IF_ERROR(WriteAll(batch.snapshots, database));
  RETURN_IF_ERROR(WriteAll(batch.members, database));
  RETURN_IF_ERROR(WriteAll(batch.contributions, database));
  RETURN_IF_ERROR(WriteAll(batch.accounts, database));
  RETURN_IF_ERROR(WriteAll(batch.quarantine, database));
  for (const uint64_t id : batch.admitted) {
    RETURN_IF_ERROR(database.Run(
        "UPDATE quarantine SET state = 'admitted' WHERE id = ?", id));
  }
  if (batch.flags.has_value()) RETURN_IF_ERROR(Write(*batch.flags, database));
  RETURN_IF_ERROR(WriteAll(batch.training, database));
  RETURN_IF_ERROR(WriteAll(batch.validations, database));
  return WriteAll(batch.events, database);
}

}  // namespace

absl::string_view ContributionFateName(ContributionFate fate) {
  switch (fate) {
    case ContributionFate::kMerged:
      return "merged";
    case ContributionFate::kPartial:
      return "partial";
    case ContributionFate::kLate:
      return "late";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::Connect(
    const std::string& path, SqliteDatabase::Mode mode) {
  ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path, mode));
  const bool read_only = mode != SqliteDatabase::Mode::kReadWriteCreate;
  std::unique_ptr<CommitLog> log(
      new CommitLog(std::move(database), path, read_only));
  absl::MutexLock lock(&log->mutex_);
  RETURN_IF_ERROR(log->PrepareSchema());
  RETURN_IF_ERROR(log->ReadPosition());
  if (!read_only) RETURN_IF_ERROR(log->NoteFiles());
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

absl::StatusOr<std::unique_ptr<CommitLog>> CommitLog::OpenUnused(
    const std::string& path) {
  return Connect(path, SqliteDatabase::Mode::kReadOnlyUnused);
}

absl::Status CommitLog::CheckStructure() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement check,
                   database_.Prepare("PRAGMA quick_check(1)"));
  ASSIGN_OR_RETURN(const bool row, check.Step());
  const std::string found = row ? check.Text(0) : "no answer";
  if (found == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, " is damaged: ", found));
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
  if (!empty && version != kCommitLogSchemaVersion) {
    return absl::FailedPreconditionError(absl::Substitute(
        "$0 was written by another version of Causeway (schema $1, this one "
        "has $2): use that version",
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
    mutex_.AssertHeld();
    return database_.Execute(
        absl::Substitute(kCommitLogSchema, TokenLedger::kMost,
                         kCommitLogApplicationId, kCommitLogSchemaVersion));
  });
}

absl::Status CommitLog::NoteFiles() {
  files_.clear();
  for (const char* suffix : {"", "-wal"}) {
    ASSIGN_OR_RETURN(FileIdentity file,
                     FileIdentity::Of(absl::StrCat(path_, suffix)));
    files_.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status CommitLog::CheckInPlaceLocked() const {
  for (const FileIdentity& file : files_) RETURN_IF_ERROR(file.Check());
  return absl::OkStatus();
}

absl::Status CommitLog::CheckInPlace() {
  absl::MutexLock lock(&mutex_);
  return CheckInPlaceLocked();
}

absl::Status CommitLog::TransactLocked(absl::FunctionRef<absl::Status()> body) {
  if (read_only_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is opened for reading only"));
  }
  if (const absl::Status doubt = Doubt(); !doubt.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     " takes no writes while the outcome of an earlier one is "
                     "unknown: ",
                     doubt.message()));
  }
  RETURN_IF_ERROR(CheckInPlaceLocked());
  RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  if (absl::Status status = body(); !status.ok()) {
    // After some errors SQLite has rolled back by itself.
    if (database_.in_transaction()) {
      if (absl::Status rollback = database_.Execute("ROLLBACK");
          !rollback.ok()) {
        SetDoubt(std::move(rollback));
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
  // If space was short or the lock was not granted, the mark that ends the
  // transaction in the log was not written, and a rollback undoes it. After any
  // other failure, above all of fsync, the mark may be on the disk.
  if (rollback.ok() &&
      (absl::IsResourceExhausted(status) || absl::IsUnavailable(status))) {
    return status;
  }
  SetDoubt(status);
  return absl::UnknownError(
      absl::StrCat("outcome unknown of a commit to ", status.message()));
}

absl::StatusOr<DoubtfulWrite> CommitLog::Reconcile() {
  absl::MutexLock lock(&mutex_);
  if (!InDoubt()) return DoubtfulWrite{};
  // The path may name no file, or a database without the write.
  RETURN_IF_ERROR(CheckInPlaceLocked());
  // Keep the database open while the disk takes no writes: it can be read.
  const std::string probe = absl::StrCat(path_, ".probe");
  RETURN_IF_ERROR(WriteFileAtomically(probe, {absl::string_view("probe")}));
  RETURN_IF_ERROR(RemoveFile(probe));
  RETURN_IF_ERROR(database_.Reopen());
  RETURN_IF_ERROR(PrepareSchema());
  RETURN_IF_ERROR(NoteFiles());
  // After a failed sync, the data read here may be only in the system's cache,
  // where they count as written. A checkpoint writes all of them elsewhere, and
  // later transactions begin a new log.
  ASSIGN_OR_RETURN(const int64_t busy,
                   database_.QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy != 0) {
    return absl::UnavailableError(
        absl::StrCat(path_, " is being read by another process"));
  }
  RETURN_IF_ERROR(ReadPosition());
  SetDoubt(absl::OkStatus());
  const std::shared_ptr<const v1::LogChange> doubtful =
      std::exchange(doubtful_, nullptr);
  DoubtfulWrite write;
  if (doubtful == nullptr) return write;
  if (doubtful->commits_size() > 0) {
    write.fragment = doubtful->commits(0).fragment();
  }
  write.found = position_.index() == doubtful->position().index();
  if (write.found) Advance(doubtful);
  return write;
}

absl::Status CommitLog::ReadPosition() {
  ASSIGN_OR_RETURN(SqliteStatement query,
                   database_.Prepare("SELECT epoch, changes, hash FROM log"));
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) {
    return absl::DataLossError(
        absl::StrCat(path_,
                     " lacks the row of the table log. Restore it from "
                     "a backup. Nothing was changed"));
  }
  epoch_ = query.Uint(0);
  position_.set_index(query.Uint(1));
  position_.set_hash(absl::HexStringToBytes(query.Text(2)));
  return absl::OkStatus();
}

absl::Status CommitLog::WritePosition(const v1::LogPosition& position,
                                      uint64_t epoch) {
  return database_.Run("UPDATE log SET epoch = ?, changes = ?, hash = ?", epoch,
                       position.index(), DigestToHex(position.hash()));
}

void CommitLog::Advance(std::shared_ptr<const v1::LogChange> change) {
  position_ = change->position();
  if (publish_ != nullptr) publish_(std::move(change));
}

absl::Status CommitLog::ChangeLocked(std::shared_ptr<v1::LogChange> change,
                                     absl::FunctionRef<absl::Status()> body) {
  absl::Status changed = TransactLocked([&]() -> absl::Status {
    mutex_.AssertHeld();
    ASSIGN_OR_RETURN(*change->mutable_rows(),
                     database_.RecordChanges(TellsOfDirectory, body));
    if (change->rows().empty()) return absl::OkStatus();
    change->mutable_position()->set_index(position_.index() + 1);
    change->mutable_position()->set_hash(
        Chain(position_.hash(), epoch_, change->rows()));
    return WritePosition(change->position(), epoch_);
  });
  if (change->rows().empty()) return changed;
  if (changed.ok()) {
    Advance(std::move(change));
  } else if (absl::IsUnknown(changed)) {
    doubtful_ = std::move(change);
  }
  return changed;
}

v1::LogPosition CommitLog::Publish(Publisher publish) {
  absl::MutexLock lock(&mutex_);
  publish_ = std::move(publish);
  return position_;
}

absl::Status CommitLog::ApplyChanges(absl::Span<const v1::LogChange> changes,
                                     uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  v1::LogPosition end = position_;
  for (const v1::LogChange& change : changes) {
    const v1::LogPosition& position = change.position();
    if (position.index() != end.index() + 1 ||
        position.hash() != Chain(end.hash(), epoch, change.rows())) {
      return absl::DataLossError(absl::Substitute(
          "change $0 of the log does not continue $1, which has $2 changes",
          position.index(), path_, end.index()));
    }
    end = position;
  }
  absl::Status changed = TransactLocked([&]() -> absl::Status {
    mutex_.AssertHeld();
    for (const v1::LogChange& change : changes) {
      RETURN_IF_ERROR(database_.ApplyChanges(change.rows()));
    }
    return WritePosition(end, epoch);
  });
  if (absl::IsAlreadyExists(changed)) {
    return absl::DataLossError(changed.message());
  }
  if (absl::IsUnknown(changed)) {
    doubtful_ = std::make_shared<v1::LogChange>(changes.back());
  }
  RETURN_IF_ERROR(changed);
  epoch_ = epoch;
  position_ = end;
  return absl::OkStatus();
}

absl::Status CommitLog::Follow(const LeaderRecord& leader, uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(TransactLocked([&] {
    mutex_.AssertHeld();
    return database_.Run(
        "UPDATE log SET is_copy = 1, epoch = max(epoch, ?), leader = ?,"
        " leader_config = ?",
        epoch, leader.address, PrintText(leader.config));
  }));
  epoch_ = std::max(epoch_, epoch);
  return absl::OkStatus();
}

absl::Status CommitLog::RecordConfig(const v1::RunConfig& config) {
  absl::MutexLock lock(&mutex_);
  return TransactLocked([&] {
    mutex_.AssertHeld();
    // A start on a full disk must not fail for a row that stays the same.
    return database_.Run(
        "UPDATE log SET leader_config = ?1 WHERE leader_config <> ?1",
        PrintText(config));
  });
}

absl::Status CommitLog::ReplaceSnapshots(
    uint32_t fragment, absl::Span<const SnapshotRecord> snapshots) {
  absl::MutexLock lock(&mutex_);
  return TransactLocked([&]() -> absl::Status {
    mutex_.AssertHeld();
    RETURN_IF_ERROR(
        database_.Run("DELETE FROM snapshots WHERE fragment = ?", fragment));
    return WriteAll(snapshots, database_);
  });
}

absl::StatusOr<uint64_t> CommitLog::TakeOver(std::optional<uint64_t> epoch,
                                             uint64_t known) {
  absl::MutexLock lock(&mutex_);
  uint64_t raised = 0;
  RETURN_IF_ERROR(TransactLocked([&]() -> absl::Status {
    mutex_.AssertHeld();
    const std::string values =
        epoch.has_value()
            ? absl::StrCat("is_copy = 2, epoch = max(epoch, ", *epoch, ")")
            : absl::StrCat("is_copy = 0, epoch = max(epoch, ", known,
                           ") + 1 WHERE is_copy OR epoch <= ", known);
    ASSIGN_OR_RETURN(SqliteStatement raise,
                     database_.Prepare(absl::StrCat("UPDATE log SET ", values,
                                                    " RETURNING epoch")));
    ASSIGN_OR_RETURN(const bool row, raise.Step());
    if (!row) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, " is no copy of another coordinator's log"));
    }
    raised = raise.Uint(0);
    return raise.Run();
  }));
  epoch_ = raised;
  return raised;
}

absl::Status CommitLog::CreateRun(const RunRecord& run) {
  absl::MutexLock lock(&mutex_);
  const auto change = std::make_shared<v1::LogChange>();
  return ChangeLocked(change, [&]() -> absl::Status {
    mutex_.AssertHeld();
    ASSIGN_OR_RETURN(SqliteStatement insert,
                     database_.Prepare(
                         "INSERT INTO run (id, run_id, config, plan,"
                         " created_at, started, paused)"
                         " VALUES (1, ?, ?, ?, ?, 0, NULL)",
                         run.run_id, PrintText(run.config), PrintText(run.plan),
                         absl::ToUnixMicros(run.created_at)));
    absl::Status inserted = insert.Run();
    if (absl::IsAlreadyExists(inserted)) {
      return absl::AlreadyExistsError(absl::StrCat(path_, " holds a run"));
    }
    return inserted;
  });
}

absl::Status CommitLog::Apply(const LogBatch& batch) {
  absl::MutexLock lock(&mutex_);
  const auto change = std::make_shared<v1::LogChange>();
  for (const CommitRecord& commit : batch.commits) {
    *change->add_commits() = commit.head;
  }
  return ChangeLocked(change, [&] {
    mutex_.AssertHeld();
    return WriteBatch(batch, database_);
  });
}

}  // namespace causeway
