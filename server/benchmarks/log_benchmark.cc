// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the queries of a coordinator's start, a takeover and a follower's
// hello on a commit log with a long history. The argument is the number of
// rounds, each of four fragments and eight islands. Writes below $TMPDIR, or
// /tmp, about 6 KB for a round.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "benchmark/benchmark.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "server/storage/commit_log.h"
#include "server/storage/sqlite.h"

namespace causeway {
namespace {

constexpr uint32_t kFragments = 4;

// Adds $0 rounds of $1 fragments and eight islands.
constexpr char kRounds[] = R"sql(
BEGIN;
WITH RECURSIVE v(version) AS (
  SELECT 0 UNION ALL SELECT version + 1 FROM v WHERE version < $0)
INSERT INTO commits SELECT value, version, printf('%032x', version),
  printf('updates/update-%04d-v%08d.safetensors', value, version), 0.5,
  1700000000000000 + version * 60000000, 8, 8, 8
  FROM v, json_each('[0, 1, 2, 3]') WHERE value < $1;
WITH RECURSIVE v(version) AS (
  SELECT 0 UNION ALL SELECT version + 1 FROM v WHERE version < $0 - 1)
INSERT INTO contributions SELECT f.value, version, 'island-' || i.value, 1,
  'merged', 1000000, 100, 0.125, 0.5, printf('%032x', version),
  1700000000000000 + version * 60000000, 0
  FROM v, json_each('[0, 1, 2, 3]') AS f, json_each('[1,2,3,4,5,6,7,8]') AS i
  WHERE f.value < $1;
INSERT INTO events SELECT NULL, committed_at, 'round_merged', '',
  'fragment ' || fragment || ' is at version ' || version ||
  ': merged 8 of 8 islands' FROM commits ORDER BY version;
INSERT INTO members SELECT 'island-' || value, 1, value, 'live', 'benchmark',
  1700000000000000, NULL, '', value, '0,0,0,0', 0
  FROM json_each('[1,2,3,4,5,6,7,8]');
INSERT INTO accounts SELECT 'island-' || value, 1, 0, '0,0,0,0'
  FROM json_each('[1,2,3,4,5,6,7,8]');
COMMIT;
PRAGMA wal_checkpoint(TRUNCATE);
)sql";

// A log that is removed at the end.
class Scratch {
 public:
  explicit Scratch(int64_t rounds) {
    Reopen();
    CHECK(log_->CreateRun({.run_id = "run-1"}).ok());
    log_ = nullptr;
    Execute(absl::Substitute(kRounds, rounds, kFragments));
    Reopen();
  }

  CommitLog& log() { return *log_; }

  void Execute(const std::string& sql) {
    auto database =
        SqliteDatabase::Open(path(), SqliteDatabase::Mode::kReadWriteCreate);
    CHECK(database.ok()) << database.status();
    const absl::Status done = database->Execute(sql);
    CHECK(done.ok()) << done;
  }

  void Reopen() {
    log_ = nullptr;
    auto log = CommitLog::Open(path());
    CHECK(log.ok()) << log.status();
    log_ = *std::move(log);
  }

 private:
  std::string path() const {
    return absl::StrCat(directory_.path(), "/run.sqlite3");
  }

  const TemporaryDirectory directory_ =
      *TemporaryDirectory::Make("causeway-log");
  std::unique_ptr<CommitLog> log_;
};

// Returns the log of this number of rounds, which measurements share.
Scratch& LogOf(const benchmark::State& run) {
  static std::map<int64_t, Scratch> logs;
  return logs.try_emplace(run.range(0), run.range(0)).first->second;
}

void BM_Open(benchmark::State& run) {
  Scratch& scratch = LogOf(run);
  for (auto _ : run) scratch.Reopen();
}

void BM_CheckCommits(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) CHECK(log.CheckCommits(kFragments).ok());
}

void BM_Heads(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) CHECK(log.Heads()->size() == kFragments);
}

void BM_Members(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) CHECK(log.Members()->size() == 8);
}

void BM_LoadHistory(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) {
    CHECK(log.LoadHistory(kFragments, 512)->settled.size() == 32);
  }
}

void BM_KindThatNeverCame(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) {
    CHECK(log.NewestEvents(0, 1, {.kinds = {"run_paused"}})->empty());
  }
}

// A follower does this when it is started.
void BM_CheckStructure(benchmark::State& run) {
  CommitLog& log = LogOf(run).log();
  for (auto _ : run) CHECK(log.CheckStructure().ok());
}

void Rounds(benchmark::internal::Benchmark* measurement) {
  measurement->Arg(3'000)->Arg(300'000)->Unit(benchmark::kMillisecond);
  measurement->UseRealTime();
}

BENCHMARK(BM_Open)->Apply(Rounds);
BENCHMARK(BM_CheckCommits)->Apply(Rounds);
BENCHMARK(BM_Heads)->Apply(Rounds);
BENCHMARK(BM_Members)->Apply(Rounds);
BENCHMARK(BM_LoadHistory)->Apply(Rounds);
BENCHMARK(BM_KindThatNeverCame)->Apply(Rounds);
BENCHMARK(BM_CheckStructure)->Apply(Rounds);

}  // namespace
}  // namespace causeway
