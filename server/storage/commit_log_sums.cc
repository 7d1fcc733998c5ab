// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/commit_log_sums.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "common/status_macros.h"
#include "server/rules/log_batch.h"
#include "server/rules/token_ledger.h"
#include "server/storage/commit_log.h"
#include "server/storage/commit_log_schema.h"

namespace causeway {
namespace {

TokenLedger::Fate FateOfSum(absl::string_view name) {
  return name == ContributionFateName(ContributionFate::kPartial)
             ? TokenLedger::Fate::kPartial
             : TokenLedger::Fate::kMerged;
}

std::string AddTokens() {
  return absl::Substitute(kCommitLogAddTokens, TokenLedger::kMost);
}

}  // namespace

absl::StatusOr<bool> HasSums(SqliteDatabase& database) {
  ASSIGN_OR_RETURN(const int64_t parts, database.QueryInt(kCommitLogSumParts));
  if (parts != kCommitLogSumPartCount) return false;
  ASSIGN_OR_RETURN(
      const int64_t are_whole,
      database.QueryInt("SELECT (SELECT ifnull(sum(commits), 0)"
                        " FROM round_sums) = (SELECT count(*) FROM commits)"));
  return are_whole != 0;
}

absl::Status MakeSums(SqliteDatabase& database) {
  return database.Execute(absl::StrCat(
      absl::Substitute(kCommitLogSums, "", AddTokens()),
      absl::Substitute(kCommitLogSumTriggers, AddTokens()), kCommitLogIndexes));
}

absl::Status MakeTemporarySums(SqliteDatabase& database) {
  return database.Execute(
      absl::Substitute(kCommitLogSums, "TEMP", AddTokens()));
}

absl::StatusOr<std::vector<CoordinatorHistory::Settled>> SumsOfTokens(
    SqliteDatabase& database) {
  return database.ReadRows(
      [](const SqliteStatement& row) {
        return CoordinatorHistory::Settled{
            .key = {row.Text(0), row.Uint(1)},
            .fragment = static_cast<uint32_t>(row.Int(2)),
            .fate = FateOfSum(row.Text(3)),
            .tokens = row.Uint(4),
            .restored = row.Uint(5),
            .base_version = row.Uint(6)};
      },
      "SELECT island_id, incarnation, fragment, fate, tokens, restored_tokens,"
      " newest_base_version FROM token_sums ORDER BY 1, 2, 3, 4");
}

absl::StatusOr<v1::Participation> SumOfRounds(SqliteDatabase& database) {
  v1::Participation sum;
  ASSIGN_OR_RETURN(
      SqliteStatement query,
      database.Prepare("SELECT sum(live), sum(contributing), sum(merged)"
                       " FROM round_sums"));
  RETURN_IF_ERROR(query.Step().status());
  sum.set_live(query.Uint(0));
  sum.set_contributing(query.Uint(1));
  sum.set_merged(query.Uint(2));
  return sum;
}

}  // namespace causeway
