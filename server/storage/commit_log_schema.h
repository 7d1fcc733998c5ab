// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tables of server/storage/commit_log.h. Times are microseconds since the
// Unix epoch. Unsigned 64-bit quantities are stored as the signed ones with the
// same bits.
#ifndef SERVER_STORAGE_COMMIT_LOG_SCHEMA_H_
#define SERVER_STORAGE_COMMIT_LOG_SCHEMA_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace causeway {

// Rises with every change that earlier programs cannot handle.
inline constexpr int64_t kCommitLogSchemaVersion = 7;
// Marks the database as Causeway's: "CWAY".
inline constexpr int64_t kCommitLogApplicationId = 0x43574159;

// $0 is TokenLedger::kMost, $1 the application's id and $2 the version.
inline constexpr char kCommitLogSchema[] = R"sql(
CREATE TABLE run (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  run_id TEXT NOT NULL,
  config TEXT NOT NULL,      -- causeway.v1.RunConfig, text format
  plan TEXT NOT NULL,        -- causeway.v1.FragmentPlan, text format
  created_at INTEGER NOT NULL,
  data_digest TEXT NOT NULL DEFAULT '',  -- of the run's data
  data_accepted INTEGER NOT NULL DEFAULT 0,  -- 1: an operator named them
  started INTEGER NOT NULL,  -- 1 once min_islands were ready
  paused TEXT                -- why, while an operator holds the run
) STRICT;

CREATE TABLE commits (
  fragment INTEGER NOT NULL,
  version INTEGER NOT NULL,
  digest TEXT NOT NULL,      -- XXH3-128 of the parameters, hexadecimal
  update_file TEXT NOT NULL,
  merged_norm REAL NOT NULL,
  committed_at INTEGER NOT NULL,
  live INTEGER NOT NULL,     -- islands when the round closed: live,
  contributing INTEGER NOT NULL,  -- that had begun to hand in
  merged INTEGER NOT NULL,   -- and whose contribution was merged
  PRIMARY KEY (fragment, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
  series TEXT NOT NULL CHECK (series IN ('training', 'validation')),
  version INTEGER NOT NULL,  -- of the whole model
  time INTEGER NOT NULL,
  loss REAL NOT NULL,        -- nats per token
  point TEXT NOT NULL,       -- causeway.v1.TrainingPoint or ValidationPoint
  PRIMARY KEY (series, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
  island_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  instance_id INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('live', 'left', 'evicted', 'diverged')),
  description TEXT NOT NULL,
  joined_at INTEGER NOT NULL,
  ended_at INTEGER,          -- null while live
  reason TEXT NOT NULL,
  shard INTEGER NOT NULL,    -- Member.place
  first_versions TEXT NOT NULL,  -- by fragment, separated by commas
  draining INTEGER NOT NULL,
  PRIMARY KEY (island_id, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE contributions (
  fragment INTEGER NOT NULL,
  base_version INTEGER NOT NULL,
  island_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  fate TEXT NOT NULL
    CHECK (fate IN ('merged', 'partial', 'late')),
  tokens INTEGER NOT NULL,
  inner_steps INTEGER NOT NULL,
  weight REAL NOT NULL,
  norm REAL NOT NULL,
  digest TEXT NOT NULL,      -- XXH3-128 of the encoding, hexadecimal
  at INTEGER NOT NULL,
  restored_tokens INTEGER NOT NULL DEFAULT 0,  -- of tokens, from a checkpoint
  PRIMARY KEY (fragment, base_version, island_id, incarnation, fate)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX merged_once
  ON contributions (fragment, base_version, island_id, incarnation)
  WHERE fate <> 'late';

CREATE TABLE accounts (
  island_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  process_tokens INTEGER NOT NULL,
  reported TEXT NOT NULL,    -- by fragment, separated by commas
  PRIMARY KEY (island_id, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE quarantine (
  id INTEGER PRIMARY KEY,
  state TEXT NOT NULL CHECK (state IN ('held', 'admitted', 'dropped')),
  header TEXT NOT NULL,      -- causeway.v1.ContributionHeader, text format
  norm REAL,                 -- null if it is not finite
  reason TEXT NOT NULL,
  admissible INTEGER NOT NULL,
  quarantined_at INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  kind TEXT NOT NULL,
  island_id TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;

-- The versions that have a file of their own in this state directory.
CREATE TABLE snapshots (
  fragment INTEGER NOT NULL,
  version INTEGER NOT NULL,
  file TEXT NOT NULL,
  PRIMARY KEY (fragment, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE log (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  epoch INTEGER NOT NULL,    -- of the coordinator that writes
  changes INTEGER NOT NULL,  -- transactions since the run began
  hash TEXT NOT NULL,        -- chains them, hexadecimal
  is_copy INTEGER NOT NULL DEFAULT 0,     -- 1: of another coordinator's log,
                                          -- 2: perhaps, as its coordinator was
                                          -- elected and may be replaced
  leader TEXT NOT NULL DEFAULT '',        -- the other's last known address
  leader_config TEXT NOT NULL DEFAULT ''  -- the causeway.v1.RunConfig with
                                          -- which the run was led last
) STRICT;
INSERT INTO log (id, epoch, changes, hash) VALUES (1, 1, 0, '');

-- Sums over the rows of commits and contributions, so that a start need not
-- read all rows. The tables have no PRIMARY KEY because SQLite's changesets
-- leave such tables out: each copy of a log keeps its own sums.
CREATE TABLE round_sums (
  fragment INTEGER NOT NULL UNIQUE,
  commits INTEGER NOT NULL,
  live INTEGER NOT NULL,
  contributing INTEGER NOT NULL,
  merged INTEGER NOT NULL
) STRICT;

CREATE TABLE token_sums (    -- of merged contributions
  island_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  fragment INTEGER NOT NULL,
  fate TEXT NOT NULL,
  contributions INTEGER NOT NULL,
  tokens INTEGER NOT NULL,   -- at most $0 (TokenLedger::kMost)
  restored_tokens INTEGER NOT NULL,
  newest_base_version INTEGER NOT NULL,
  UNIQUE (island_id, incarnation, fragment, fate)
) STRICT;

-- Update the sums, whether a batch or a changeset adds the rows.
CREATE TRIGGER commits_added AFTER INSERT ON commits BEGIN
  INSERT INTO round_sums
    VALUES (NEW.fragment, 1, NEW.live, NEW.contributing, NEW.merged)
    ON CONFLICT DO UPDATE SET commits = commits + 1,
      live = live + excluded.live,
      contributing = contributing + excluded.contributing,
      merged = merged + excluded.merged;
END;
CREATE TRIGGER contributions_added AFTER INSERT ON contributions
WHEN NEW.fate <> 'late' BEGIN
  INSERT INTO token_sums
    VALUES (NEW.island_id, NEW.incarnation, NEW.fragment, NEW.fate, 1,
      NEW.tokens, NEW.restored_tokens, NEW.base_version)
    ON CONFLICT DO UPDATE SET contributions = contributions + 1,
      tokens = min(tokens + excluded.tokens, $0),
      restored_tokens = min(restored_tokens + excluded.restored_tokens, $0),
      newest_base_version =
        max(newest_base_version, excluded.newest_base_version);
END;

-- The smallest index, with which SQLite counts commits.
CREATE INDEX commits_of_versions ON commits (version);
CREATE INDEX events_of_kinds ON events (kind);

PRAGMA application_id = $1;
PRAGMA user_version = $2;
)sql";

// The tables that describe this state directory, not the run.
inline constexpr absl::string_view kCommitLogOwnTables[] = {"log", "snapshots"};

// Removes at most ?2 points of a series (?1), no two of them neighbours: those
// with the closest neighbours, and among equals the oldest. The first and the
// last stay, and the rest stay evenly spread.
inline constexpr char kCommitLogThinHistory[] = R"sql(
DELETE FROM history WHERE series = ?1 AND version IN (
  SELECT version FROM (
    SELECT version, row_number() OVER points AS number,
      lead(version) OVER points - lag(version) OVER points AS gap
    FROM history WHERE series = ?1 WINDOW points AS (ORDER BY version))
  WHERE number % 2 = 0 AND gap IS NOT NULL ORDER BY gap, version LIMIT ?2)
)sql";

inline constexpr char kTrainingSeries[] = "training";
inline constexpr char kValidationSeries[] = "validation";

// The columns of `commits`, in the order of CommitRecord.
inline constexpr char kCommitLogCommitColumns[] =
    "fragment, version, digest, update_file, merged_norm, committed_at, live,"
    " contributing, merged";

}  // namespace causeway

#endif  // SERVER_STORAGE_COMMIT_LOG_SCHEMA_H_
