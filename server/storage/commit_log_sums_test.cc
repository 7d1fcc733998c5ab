// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the sums that a start reads from random logs with sums over all
// rows.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/token_ledger.h"
#include "server/storage/commit_log.h"
#include "server/storage/sqlite.h"
#include "server/storage/testing/published_log.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);
constexpr uint32_t kFragments = 3;

class CommitLogSumsTest : public PublishedLogTest {
 protected:
  CommitLogSumsTest() {
    RunRecord run{.run_id = "run-1", .created_at = kStart};
    LogBatch batch;
    for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
      run.plan.add_fragments()->set_size(12);
      batch.commits.push_back(NextCommit(fragment));
    }
    EXPECT_OK(log_->CreateRun(run));
    EXPECT_OK(log_->Apply(batch));
  }

  std::unique_ptr<CommitLog> OpenReadOnly(const std::string& name) const {
    auto log = CommitLog::OpenReadOnly(PathOf(name));
    EXPECT_OK(log);
    return *std::move(log);
  }
  void Execute(const std::string& name, const std::string& sql) const {
    EXPECT_OK(OpenDatabase(name).Execute(sql)) << sql;
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  CommitRecord NextCommit(uint32_t fragment) {
    CommitRecord commit{.committed_at = kStart};
    commit.head.set_fragment(fragment);
    commit.head.set_version(versions_[fragment]++);
    commit.participation.set_live(Below(9));
    commit.participation.set_contributing(Below(9));
    commit.participation.set_merged(Below(9));
    return commit;
  }

  // Appends batches with commits and contributions of every fate.
  void Grow(uint64_t batches) {
    for (; batches > 0; --batches) {
      LogBatch batch;
      const auto fragment = static_cast<uint32_t>(Below(kFragments));
      const uint64_t base_version = versions_[fragment] - 1;
      batch.commits.push_back(NextCommit(fragment));
      for (const char* island : {"a", "b", "c"}) {
        const uint64_t incarnation = 1 + Below(3);
        batch.members.push_back({.island_id = island,
                                 .incarnation = incarnation,
                                 .state = v1::IslandStatus::LIVE});
        const uint64_t tokens = Below(1000);
        batch.contributions.push_back(
            {.fragment = fragment,
             .base_version = base_version,
             .island_id = island,
             .incarnation = incarnation,
             .tokens = tokens,
             .restored_tokens = Below(tokens + 1),
             .fate = static_cast<ContributionFate>(Below(3)),
             .at = kStart});
      }
      // A late contribution is noted twice.
      batch.contributions.push_back({.fragment = fragment,
                                     .base_version = Below(base_version + 1),
                                     .island_id = "d",
                                     .incarnation = 1,
                                     .tokens = 1,
                                     .fate = ContributionFate::kLate,
                                     .at = kStart});
      batch.contributions.push_back(batch.contributions.back());
      if (Below(3) == 0) {
        batch.snapshots.push_back({.head = batch.commits[0].head, .file = "f"});
      }
      ASSERT_OK(log_->Apply(batch));
    }
  }

  // Returns the sums over all rows of commits and contributions.
  std::string OfRows(const std::string& name) const {
    SqliteDatabase database = OpenDatabase(name);
    return absl::StrCat(
        Rows(database,
             "SELECT 'head', fragment, max(version), live || ' ' ||"
             " contributing || ' ' || merged FROM commits GROUP BY fragment"),
        Rows(database,
             "SELECT 'rounds', sum(live), sum(contributing), sum(merged)"
             " FROM commits"),
        Rows(database,
             "SELECT island_id || incarnation || fragment || fate,"
             " sum(tokens), sum(restored_tokens), max(base_version)"
             " FROM contributions WHERE fate <> 'late' GROUP BY 1 ORDER BY 1"),
        Rows(database,
             "SELECT island_id, incarnation, count(tokens),"
             " ifnull(sum(tokens), 0) FROM"
             " (SELECT island_id, max(incarnation) AS incarnation FROM members"
             "  GROUP BY island_id) LEFT JOIN"
             " (SELECT * FROM contributions WHERE fate <> 'late')"
             " USING (island_id, incarnation) GROUP BY island_id"));
  }
  static std::string Rows(SqliteDatabase& database, const char* sql) {
    const auto rows = database.ReadRows(
        [](const SqliteStatement& row) {
          return absl::StrCat(row.Text(0), " ", row.Text(1), " ", row.Text(2),
                              " ", row.Text(3), "\n");
        },
        sql);
    EXPECT_OK(rows);
    return absl::StrJoin(*rows, "");
  }

  // Returns the sums that a start reads.
  static std::string OfStart(CommitLog& log) {
    std::string text;
    const auto append = [&](const v1::Participation& participation) {
      absl::StrAppend(&text, participation.live(), " ",
                      participation.contributing(), " ", participation.merged(),
                      "\n");
    };
    const auto heads = log.Heads();
    const auto history = log.LoadHistory(kFragments, 1);
    const auto members = log.Members();
    EXPECT_OK(heads);
    EXPECT_OK(history);
    EXPECT_OK(members);
    for (const CommitRecord& commit : *heads) {
      absl::StrAppend(&text, "head ", commit.head.fragment(), " ",
                      commit.head.version(), " ");
      append(history->last_rounds[commit.head.fragment()]);
    }
    absl::StrAppend(&text, "rounds ");
    append(history->participation);
    for (const CoordinatorHistory::Settled& sum : history->settled) {
      absl::StrAppend(
          &text, sum.key.island_id, sum.key.incarnation, sum.fragment,
          sum.fate == TokenLedger::Fate::kPartial ? "partial" : "merged", " ",
          sum.tokens, " ", sum.restored, " ", sum.base_version, "\n");
    }
    for (const Member& member : *members) {
      absl::StrAppend(&text, member.island_id, " ", member.incarnation, " ",
                      member.contributions_merged, " ", member.tokens_merged,
                      "\n");
    }
    return text;
  }

  uint64_t versions_[kFragments] = {};
};

TEST_F(CommitLogSumsTest, AStartReadsWhatAllRowsSay) {
  for (int i = 0; i < 10; ++i) {
    Grow(Below(10));
    EXPECT_EQ(OfStart(*log_), OfRows("log"));
    EXPECT_EQ(OfStart(*OpenReadOnly("log")), OfRows("log"));
    EXPECT_OK(log_->CheckCommits(kFragments));
    if (Below(2) == 0) log_ = Open("log");
  }
  EXPECT_THAT(OfRows("log"), HasSubstr("partial"));
}

TEST_F(CommitLogSumsTest, AStartReadsTheSumsAndNotTheRows) {
  Grow(5);
  Execute("log", "UPDATE token_sums SET tokens = 123456");
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       Open("log")->LoadHistory(kFragments, 1));
  EXPECT_THAT(history.settled, Not(IsEmpty()));
  for (const CoordinatorHistory::Settled& sum : history.settled) {
    EXPECT_EQ(sum.tokens, 123456);
  }
}

TEST_F(CommitLogSumsTest, ACopyKeepsItsOwnSums) {
  Grow(20);
  ASSERT_OK(log_->CopyTo(PathOf("copy")));
  const std::unique_ptr<CommitLog> copy = Open("copy");
  const size_t begin = changes_.size();
  Grow(20);
  for (size_t i = begin; i < changes_.size(); ++i) {
    EXPECT_THAT(changes_[i]->rows(), Not(HasSubstr("_sums")));
    ASSERT_OK(copy->ApplyChanges({*changes_[i]}, 1));
  }
  EXPECT_EQ(OfStart(*copy), OfRows("log"));
  EXPECT_OK(copy->CheckCommits(kFragments));
}

TEST_F(CommitLogSumsTest, RowsOfAnotherProgramAreSummed) {
  Grow(3);
  Execute("log",
          "INSERT INTO commits SELECT fragment, version + 1, digest,"
          " update_file, merged_norm, committed_at, 5, 4, 3 FROM commits"
          " WHERE (fragment, version) IN"
          " (SELECT fragment, max(version) FROM commits GROUP BY fragment);"
          "INSERT INTO contributions SELECT fragment, base_version + 1000,"
          " island_id, incarnation, fate, tokens, inner_steps, weight, norm,"
          " digest, at, restored_tokens FROM contributions");
  EXPECT_EQ(OfStart(*Open("log")), OfRows("log"));
}

TEST_F(CommitLogSumsTest, ManyTokensStopAtTheMostInsteadOfOverflowing) {
  for (int i = 0; i < 10; ++i) {
    LogBatch batch{.commits = {NextCommit(0)}};
    batch.contributions.push_back(
        {.base_version = batch.commits[0].head.version() - 1,
         .island_id = "a",
         .incarnation = 1,
         .tokens = TokenLedger::kMost,
         .restored_tokens = TokenLedger::kMost,
         .at = kStart});
    ASSERT_OK(log_->Apply(batch));
  }
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log_->LoadHistory(kFragments, 1));
  ASSERT_EQ(history.settled.size(), 1);
  EXPECT_EQ(history.settled[0].tokens, TokenLedger::kMost);
  EXPECT_EQ(history.settled[0].restored, TokenLedger::kMost);
}

TEST_F(CommitLogSumsTest, ALossOfCommitsIsFoundWhereverItIs) {
  Grow(40);
  const auto rows = [&](const std::string& name) {
    return OpenDatabase(name).QueryInt("SELECT count(*) FROM commits").value();
  };
  for (int i = 0; i < 100; ++i) {
    const std::string name = absl::StrCat("lost", i);
    ASSERT_OK(log_->CopyTo(PathOf(name)));
    Execute(name, absl::StrCat("DELETE FROM commits WHERE fragment = ",
                               Below(kFragments), " AND version BETWEEN ",
                               Below(20), " AND ", Below(30)));
    const absl::Status checked = Open(name)->CheckCommits(kFragments);
    EXPECT_EQ(checked.ok(), rows(name) == rows("log")) << checked;
    if (!checked.ok()) {
      EXPECT_THAT(checked, IsDataLoss("lacks rows"));
    }
  }
  for (const uint32_t fragments : {kFragments - 1, kFragments + 1}) {
    EXPECT_THAT(log_->CheckCommits(fragments), IsDataLoss("lacks rows"));
  }
}

}  // namespace
}  // namespace causeway
