// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The sums over a commit log's rows (kCommitLogSums). A start reads them
// instead of the rows, so that it takes as long after years as on the first
// day.
//
// The database itself keeps the sums, by triggers, in the transaction that adds
// a row. A log without them, of an earlier program or edited by hand, gets them
// once, in time that grows with its rows.
#ifndef SERVER_STORAGE_COMMIT_LOG_SUMS_H_
#define SERVER_STORAGE_COMMIT_LOG_SUMS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/storage/sqlite.h"

namespace causeway {

// Returns whether the database has the sums, and they are of all its rows.
absl::StatusOr<bool> HasSums(SqliteDatabase& database);

// Makes the sums, and what keeps and uses them. Part of a transaction.
absl::Status MakeSums(SqliteDatabase& database);

// Makes sums that only this connection sees, for a database that cannot be
// written to. They do not follow later rows.
absl::Status MakeTemporarySums(SqliteDatabase& database);

// Returns the sums of merged contributions, ordered by island, incarnation,
// fragment and fate.
absl::StatusOr<std::vector<CoordinatorHistory::Settled>> SumsOfTokens(
    SqliteDatabase& database);

// Returns the participation in all rounds.
absl::StatusOr<v1::Participation> SumOfRounds(SqliteDatabase& database);

}  // namespace causeway

#endif  // SERVER_STORAGE_COMMIT_LOG_SUMS_H_
