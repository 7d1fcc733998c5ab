// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of CommitLog that reads; commit_log.cc writes, and
// commit_log_events.cc reads events.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "server/rules/norm_guard.h"
#include "server/storage/commit_log.h"
#include "server/storage/commit_log_schema.h"

namespace causeway {
namespace {

constexpr ContributionFate kFates[] = {ContributionFate::kMerged,
                                       ContributionFate::kPartial,
                                       ContributionFate::kLate};

// The schema's CHECKs allow only the names of `State`, in lower case.
template <typename State>
State StateOf(bool (*parse)(const std::string&, State*),
              absl::string_view name) {
  State state;
  CHECK(parse(absl::AsciiStrToUpper(name), &state)) << name;
  return state;
}

// Parses numbers separated by commas, as absl::StrJoin writes them.
template <typename Number>
std::vector<Number> NumbersOf(absl::string_view text) {
  std::vector<Number> numbers;
  for (const absl::string_view number :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    CHECK(absl::SimpleAtoi(number, &numbers.emplace_back())) << text;
  }
  return numbers;
}

ContributionFate FateOf(absl::string_view name) {
  for (const ContributionFate fate : kFates) {
    if (name == ContributionFateName(fate)) return fate;
  }
  LOG(FATAL) << "contribution fate " << name;
}

CommitRecord CommitOf(const SqliteStatement& row) {
  CommitRecord commit;
  commit.head.set_fragment(static_cast<uint32_t>(row.Int(0)));
  commit.head.set_version(row.Uint(1));
  commit.head.set_digest(absl::HexStringToBytes(row.Text(2)));
  commit.update_file = row.Text(3);
  commit.merged_norm = row.Double(4);
  commit.committed_at = absl::FromUnixMicros(row.Int(5));
  commit.participation.set_live(row.Uint(6));
  commit.participation.set_contributing(row.Uint(7));
  commit.participation.set_merged(row.Uint(8));
  return commit;
}

Member MemberOf(const SqliteStatement& row) {
  Member member{.island_id = row.Text(0),
                .incarnation = row.Uint(1),
                .instance_id = row.Uint(2),
                .state = StateOf(v1::IslandStatus::State_Parse, row.Text(3)),
                .description = row.Text(4),
                .joined_at = absl::FromUnixMicros(row.Int(5)),
                .reason = row.Text(7),
                .draining = row.Int(12) != 0,
                .place = static_cast<uint32_t>(row.Int(8)),
                .first_contribution_version = NumbersOf<uint64_t>(row.Text(9)),
                .contributions_merged = row.Uint(10),
                .tokens_merged = row.Uint(11)};
  if (!row.IsNull(6)) member.ended_at = absl::FromUnixMicros(row.Int(6));
  member.joined_since_divergence = NumbersOf<uint64_t>(row.Text(13));
  return member;
}

template <typename Message>
absl::Status ParseText(const std::string& text, absl::string_view what,
                       Message& message) {
  if (google::protobuf::TextFormat::ParseFromString(text, &message)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the stored ", what, " cannot be read by this version: ", text));
}

template <typename Point>
absl::StatusOr<std::optional<Point>> NewestPoint(absl::string_view series,
                                                 SqliteDatabase& database) {
  ASSIGN_OR_RETURN(SqliteStatement query,
                   database.Prepare("SELECT point FROM history WHERE series = ?"
                                    " ORDER BY version DESC LIMIT 1",
                                    series));
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return std::nullopt;
  Point point;
  RETURN_IF_ERROR(ParseText(query.Text(0), "point of the history", point));
  return point;
}

// Appends points of a series to `points`, ordered by version, until the page
// has kHistoryPageBytes. Returns whether there are more.
template <typename Point>
absl::StatusOr<bool> AppendPoints(
    absl::string_view series, uint64_t after, SqliteDatabase& database,
    uint64_t& page_bytes, google::protobuf::RepeatedPtrField<Point>& points) {
  ASSIGN_OR_RETURN(SqliteStatement query,
                   database.Prepare("SELECT point FROM history WHERE series = ?"
                                    " AND version > ? ORDER BY version",
                                    series, SqlLimit(after)));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return false;
    if (page_bytes >= CommitLog::kHistoryPageBytes) return true;
    Point& point = *points.Add();
    RETURN_IF_ERROR(ParseText(query.Text(0), "point of the history", point));
    page_bytes += point.ByteSizeLong();
  }
}

// Returns the newest version of each fragment, ordered by fragment. Reads only
// a few rows of each.
absl::StatusOr<std::vector<CommitRecord>> ReadHeads(SqliteDatabase& database) {
  return database.ReadRows(
      CommitOf,
      absl::StrCat("WITH RECURSIVE known(fragment) AS ("
                   " SELECT min(fragment) FROM commits UNION ALL"
                   " SELECT (SELECT min(fragment) FROM commits"
                   "  WHERE fragment > known.fragment)"
                   " FROM known WHERE known.fragment IS NOT NULL) SELECT ",
                   kCommitLogCommitColumns,
                   " FROM known JOIN commits USING (fragment) WHERE version ="
                   " (SELECT max(version) FROM commits"
                   "  WHERE fragment = known.fragment) ORDER BY fragment"));
}

absl::Status ReadFlags(const std::string& path, SqliteDatabase& database,
                       RunFlags& flags) {
  ASSIGN_OR_RETURN(SqliteStatement query,
                   database.Prepare("SELECT started, paused, data_digest,"
                                    " data_accepted FROM run"));
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return absl::NotFoundError(absl::StrCat(path, " has no run yet"));
  flags.started = query.Int(0) != 0;
  flags.paused = !query.IsNull(1);
  if (flags.paused) flags.pause_reason = query.Text(1);
  flags.data_digest = absl::HexStringToBytes(query.Text(2));
  flags.data_accepted = query.Int(3) != 0;
  return absl::OkStatus();
}

TokenLedger::Fate FateOfSum(absl::string_view name) {
  return name == ContributionFateName(ContributionFate::kPartial)
             ? TokenLedger::Fate::kPartial
             : TokenLedger::Fate::kMerged;
}

absl::Status ReadAccounts(SqliteDatabase& database,
                          CoordinatorHistory& history) {
  ASSIGN_OR_RETURN(history.accounts,
                   database.ReadRows(
                       [](const SqliteStatement& row) {
                         return AccountRecord{
                             .key = {row.Text(0), row.Uint(1)},
                             .process = row.Uint(4),
                             .process_tokens = row.Uint(2),
                             .reported = NumbersOf<int64_t>(row.Text(3))};
                       },
                       "SELECT island_id, incarnation, process_tokens,"
                       " reported, instance_id FROM accounts"
                       " LEFT JOIN members USING (island_id, incarnation)"));
  ASSIGN_OR_RETURN(history.settled,
                   database.ReadRows(
                       [](const SqliteStatement& row) {
                         return CoordinatorHistory::Settled{
                             .key = {row.Text(0), row.Uint(1)},
                             .fragment = static_cast<uint32_t>(row.Int(2)),
                             .fate = FateOfSum(row.Text(3)),
                             .tokens = row.Uint(4),
                             .restored = row.Uint(5),
                             .base_version = row.Uint(6)};
                       },
                       "SELECT island_id, incarnation, fragment, fate, tokens,"
                       " restored_tokens, newest_base_version FROM token_sums"
                       " ORDER BY 1, 2, 3, 4"));
  // Admitted contributions are among the merged ones.
  for (const QuarantineEntry& entry : history.quarantine) {
    if (entry.state == v1::QuarantinedContribution::ADMITTED) continue;
    history.settled.push_back(
        {.key = {entry.header.identity().island_id(),
                 entry.header.identity().incarnation()},
         .fragment = entry.header.fragment(),
         .fate = entry.state == v1::QuarantinedContribution::HELD
                     ? TokenLedger::Fate::kQuarantined
                     : TokenLedger::Fate::kRefused,
         .tokens = entry.header.tokens(),
         .restored = entry.header.restored_tokens()});
  }
  return absl::OkStatus();
}

absl::Status ReadQuarantine(SqliteDatabase& database,
                            CoordinatorHistory& history) {
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database.Prepare("SELECT id, state, header, norm, reason, admissible,"
                       " quarantined_at FROM quarantine ORDER BY id"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    QuarantineEntry& entry = history.quarantine.emplace_back();
    entry.id = query.Uint(0);
    entry.state =
        StateOf(v1::QuarantinedContribution::State_Parse, query.Text(1));
    RETURN_IF_ERROR(
        ParseText(query.Text(2), "quarantined contribution", entry.header));
    entry.norm = query.IsNull(3) ? std::numeric_limits<double>::quiet_NaN()
                                 : query.Double(3);
    entry.reason = query.Text(4);
    entry.admissible = query.Int(5) != 0;
    entry.quarantined_at = absl::FromUnixMicros(query.Int(6));
  }
}

absl::Status ReadRounds(uint64_t norms, SqliteDatabase& database,
                        CoordinatorHistory& history) {
  ASSIGN_OR_RETURN(
      SqliteStatement sums,
      database.Prepare("SELECT sum(live), sum(contributing), sum(merged)"
                       " FROM round_sums"));
  RETURN_IF_ERROR(sums.Step().status());
  history.participation.set_live(sums.Uint(0));
  history.participation.set_contributing(sums.Uint(1));
  history.participation.set_merged(sums.Uint(2));
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads, ReadHeads(database));
  for (const CommitRecord& head : heads) {
    if (head.head.fragment() >= history.last_rounds.size()) continue;
    history.last_rounds[head.head.fragment()] = head.participation;
  }
  for (size_t fragment = 0; fragment < history.merged_norms.size();
       ++fragment) {
    std::vector<NormGuard::MergedRound>& merged =
        history.merged_norms[fragment];
    ASSIGN_OR_RETURN(SqliteStatement query,
                     database.Prepare("SELECT base_version, norm, inner_steps"
                                      " FROM contributions"
                                      " WHERE fragment = ?"
                                      " AND fate <> 'late'"
                                      " ORDER BY base_version DESC",
                                      static_cast<uint64_t>(fragment)));
    int64_t base_version = -1;
    for (uint64_t read = 0;; ++read) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      if (query.Int(0) != base_version) {
        if (read >= norms) break;
        base_version = query.Int(0);
        merged.emplace_back();
      }
      merged.back().push_back(
          {.norm = query.Double(1), .inner_steps = query.Uint(2)});
    }
    std::reverse(merged.begin(), merged.end());
  }
  return absl::OkStatus();
}

}  // namespace

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
  run.epoch = epoch_;
  return run;
}

absl::StatusOr<LeaderRecord> CommitLog::LoadLeader() {
  LeaderRecord leader;
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT is_copy, leader, coalesce("
                        " nullif(leader_config, ''),"
                        " (SELECT config FROM run), '') FROM log"));
  RETURN_IF_ERROR(query.Step().status());
  leader.is_followed = query.Int(0) == 1;
  leader.is_elected = query.Int(0) == 2;
  leader.address = query.Text(1);
  RETURN_IF_ERROR(
      ParseText(query.Text(2), "configuration of the leader", leader.config));
  return leader;
}

absl::Status CommitLog::CheckCommits(uint32_t fragments) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads, ReadHeads(database_));
  uint64_t wanted = 0;
  for (const CommitRecord& head : heads) wanted += head.head.version() + 1;
  ASSIGN_OR_RETURN(const int64_t rows,
                   database_.QueryInt("SELECT count(*) FROM commits"));
  ASSIGN_OR_RETURN(const int64_t added,
                   database_.QueryInt("SELECT ifnull(sum(commits), 0)"
                                      " FROM round_sums"));
  const bool has_all_fragments =
      heads.empty() || (heads.size() == fragments &&
                        heads.back().head.fragment() + 1 == fragments);
  if (has_all_fragments && static_cast<uint64_t>(rows) == wanted &&
      rows == added) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::Substitute(
      "$0 lacks rows of the table commits. Restore it from a backup, together "
      "with the files that belong to it. Nothing was changed",
      path_));
}

absl::StatusOr<std::vector<CommitRecord>> CommitLog::Heads() {
  absl::MutexLock lock(&mutex_);
  return ReadHeads(database_);
}

absl::StatusOr<std::vector<CommitRecord>> CommitLog::History(uint32_t fragment,
                                                             uint64_t limit) {
  absl::MutexLock lock(&mutex_);
  return database_.ReadRows(CommitOf,
                            absl::StrCat("SELECT ", kCommitLogCommitColumns,
                                         " FROM commits WHERE fragment = ?"
                                         " ORDER BY version DESC LIMIT ?"),
                            fragment, SqlLimit(limit));
}

absl::StatusOr<std::vector<SnapshotRecord>> CommitLog::Snapshots(
    uint32_t fragment, uint64_t limit) {
  absl::MutexLock lock(&mutex_);
  return database_.ReadRows(
      [&](const SqliteStatement& row) {
        SnapshotRecord snapshot{.file = row.Text(2)};
        snapshot.head.set_fragment(fragment);
        snapshot.head.set_version(row.Uint(0));
        snapshot.head.set_digest(absl::HexStringToBytes(row.Text(1)));
        return snapshot;
      },
      "SELECT version, digest, file FROM snapshots"
      " CROSS JOIN commits USING (fragment, version)"
      " WHERE fragment = ? ORDER BY version DESC LIMIT ?",
      fragment, SqlLimit(limit));
}

absl::StatusOr<CommitRecord> CommitLog::FindCommit(uint32_t fragment,
                                                   uint64_t version) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      const std::vector<CommitRecord> found,
      database_.ReadRows(
          CommitOf,
          absl::StrCat("SELECT ", kCommitLogCommitColumns,
                       " FROM commits WHERE fragment = ? AND version = ?"),
          fragment, version));
  if (!found.empty()) return found[0];
  return absl::NotFoundError(absl::Substitute(
      "fragment $0 has no committed version $1", fragment, version));
}

absl::StatusOr<std::vector<Member>> CommitLog::Members() {
  absl::MutexLock lock(&mutex_);
  return database_.ReadRows(
      MemberOf,
      "SELECT island_id, incarnation, instance_id, state,"
      " description, joined_at, ended_at, reason, shard, first_versions,"
      " (SELECT ifnull(sum(contributions), 0) FROM token_sums AS s"
      "  WHERE s.island_id = m.island_id AND s.incarnation = m.incarnation),"
      " (SELECT ifnull(sum(tokens), 0) FROM token_sums AS s"
      "  WHERE s.island_id = m.island_id AND s.incarnation = m.incarnation)"
      ", draining,"
      " (SELECT group_concat(DISTINCT printf('%u', s.instance_id))"
      "  FROM members AS s WHERE s.island_id = m.island_id AND s.incarnation >"
      "  (SELECT max(d.incarnation) FROM members AS d"
      "   WHERE d.island_id = m.island_id AND d.state = 'diverged'))"
      " FROM members AS m WHERE incarnation ="
      " (SELECT max(incarnation) FROM members"
      "  WHERE island_id = m.island_id) ORDER BY island_id");
}

absl::StatusOr<std::vector<ContributionRecord>> CommitLog::MergedContributions(
    uint32_t fragment, uint64_t base_version, absl::string_view island_id) {
  // Sorts after every name.
  constexpr absl::string_view kLast = "\x7f";
  absl::MutexLock lock(&mutex_);
  return database_.ReadRows(
      [&](const SqliteStatement& row) {
        return ContributionRecord{.fragment = fragment,
                                  .base_version = base_version,
                                  .island_id = row.Text(0),
                                  .incarnation = row.Uint(1),
                                  .tokens = row.Uint(2),
                                  .inner_steps = row.Uint(3),
                                  .weight = row.Double(4),
                                  .norm = row.Double(8),
                                  .digest = absl::HexStringToBytes(row.Text(5)),
                                  .fate = FateOf(row.Text(7)),
                                  .at = absl::FromUnixMicros(row.Int(6))};
      },
      "SELECT island_id, incarnation, tokens, inner_steps, weight, digest,"
      " at, fate, norm"
      " FROM contributions WHERE fragment = ? AND base_version = ?"
      " AND island_id BETWEEN ? AND ?"
      " AND fate <> 'late' ORDER BY island_id, incarnation",
      fragment, base_version, island_id, island_id.empty() ? kLast : island_id);
}

absl::StatusOr<CoordinatorHistory> CommitLog::LoadHistory(uint32_t fragments,
                                                          uint64_t norms) {
  CoordinatorHistory history;
  history.merged_norms.resize(fragments);
  history.last_rounds.resize(fragments);
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(ReadFlags(path_, database_, history.flags));
  RETURN_IF_ERROR(ReadQuarantine(database_, history));
  RETURN_IF_ERROR(ReadAccounts(database_, history));
  RETURN_IF_ERROR(ReadRounds(norms, database_, history));
  ASSIGN_OR_RETURN(history.training,
                   NewestPoint<v1::TrainingPoint>(kTrainingSeries, database_));
  ASSIGN_OR_RETURN(history.validation, NewestPoint<v1::ValidationPoint>(
                                           kValidationSeries, database_));
  return history;
}

absl::StatusOr<std::string> CommitLog::LoadDataDigest() {
  absl::MutexLock lock(&mutex_);
  RunFlags flags;
  RETURN_IF_ERROR(ReadFlags(path_, database_, flags));
  return flags.data_digest;
}

absl::StatusOr<v1::GetHistoryResponse> CommitLog::HistoryAfter(
    const v1::GetHistoryRequest& request) {
  v1::GetHistoryResponse response;
  absl::MutexLock lock(&mutex_);
  uint64_t page_bytes = 0;
  ASSIGN_OR_RETURN(
      bool more,
      AppendPoints(kTrainingSeries, request.training_after(), database_,
                   page_bytes, *response.mutable_training()));
  if (!more) {
    ASSIGN_OR_RETURN(
        more,
        AppendPoints(kValidationSeries, request.validation_after(), database_,
                     page_bytes, *response.mutable_validations()));
  }
  response.set_more(more);
  return response;
}

}  // namespace causeway
