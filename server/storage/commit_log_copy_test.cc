// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests copies of a log that follow it change by change.
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/storage/commit_log.h"
#include "server/storage/sqlite.h"
#include "server/storage/testing/published_log.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

CommitRecord TestCommit(uint64_t version) {
  CommitRecord commit{.update_file = absl::StrCat("v", version),
                      .merged_norm = 0.1 * static_cast<double>(version),
                      .committed_at = kStart};
  commit.head.set_version(version);
  commit.head.set_digest(std::string(16, static_cast<char>(version)));
  return commit;
}

// Returns a batch with some of everything.
LogBatch TestBatch(uint64_t version, std::mt19937_64& random) {
  LogBatch batch{.commits = {TestCommit(version)}};
  batch.snapshots.push_back({.head = batch.commits[0].head, .file = "mine"});
  const std::string island(1, static_cast<char>('a' + random() % 4));
  batch.members.push_back({.island_id = island,
                           .incarnation = 1 + random() % 3,
                           .instance_id = random(),
                           .state = v1::IslandStatus::LIVE,
                           .first_contribution_version = {version}});
  batch.contributions.push_back(
      {.base_version = version - 1,
       .island_id = island,
       .incarnation = version,
       .tokens = random(),
       .weight = std::generate_canonical<double, 53>(random),
       .norm = 1e30 * std::generate_canonical<double, 53>(random),
       .digest = std::string(16, '\0'),
       .at = kStart});
  batch.accounts.push_back({.key = {island, version}, .reported = {-1, 5}});
  batch.flags.emplace();
  batch.flags->started = true;
  v1::ValidationPoint point;
  point.mutable_validation()->set_version(version);
  batch.validations.push_back(std::move(point));
  for (uint64_t i = random() % 3; i > 0; --i) {
    batch.events.push_back({.kind = "k", .text = "\xc3\xa9", .time = kStart});
  }
  return batch;
}

class CommitLogCopyTest : public PublishedLogTest {
 protected:
  CommitLogCopyTest() {
    RunRecord run{.run_id = "run-1", .created_at = kStart};
    run.plan.add_fragments()->set_size(12);
    LogBatch batch{.commits = {TestCommit(0)}};
    EXPECT_OK(log_->CreateRun(run));
    EXPECT_OK(log_->Apply(batch));
  }

  std::unique_ptr<CommitLog> Copy(const std::string& name) {
    EXPECT_OK(log_->CopyTo(PathOf(name)));
    std::unique_ptr<CommitLog> copy = Open(name);
    LeaderRecord leader{.address = "leader:7070"};
    leader.config.set_name("leading");
    EXPECT_OK(copy->Follow(leader));
    EXPECT_OK(copy->ReplaceSnapshots(0, {}));
    return copy;
  }
  void Grow(uint64_t versions) {
    for (uint64_t i = 0; i < versions; ++i) {
      LogBatch batch = TestBatch(++version_, random_);
      ASSERT_OK(log_->Apply(batch));
    }
  }

  // Returns the rows of all tables about the run.
  std::string RowsOf(const std::string& name) const {
    SqliteDatabase database = OpenDatabase(name);
    const std::pair<const char*, const char*> tables[] = {
        {"run", "run_id, config, plan, started"},
        {"commits", "fragment, version, digest, update_file, merged_norm"},
        {"history", "series, version, point"},
        {"members", "island_id, incarnation, instance_id, first_versions"},
        {"contributions", "island_id, base_version, tokens, weight, norm"},
        {"accounts", "island_id, incarnation, reported"},
        {"events", "id, time, kind, text"},
        {"round_sums", "fragment, commits, live"},
        {"token_sums", "island_id, incarnation, contributions, tokens"}};
    std::string rows;
    for (const auto& [table, columns] : tables) {
      auto query = database.Prepare(
          absl::StrCat("SELECT quote(group_concat(concat, '|')) FROM (SELECT ",
                       absl::StrReplaceAll(columns, {{", ", " || ',' || "}}),
                       " AS concat FROM ", table, " ORDER BY 1)"));
      EXPECT_OK(query);
      EXPECT_OK(query->Step());
      absl::StrAppend(&rows, table, ": ", query->Text(0), "\n");
    }
    return rows;
  }

  uint64_t version_ = 0;
};

TEST_F(CommitLogCopyTest, ACopyThatGetsAllChangesHasAllRows) {
  Grow(5);
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  const uint64_t begin = copy->Position().index();
  EXPECT_EQ(begin, changes_.size());
  Grow(40);
  for (uint64_t i = begin; i < changes_.size(); ++i) {
    EXPECT_THAT(changes_[i]->commits(), SizeIs(1));
    ASSERT_OK(copy->ApplyChanges({*changes_[i]}, 1));
  }
  EXPECT_EQ(copy->Position().SerializeAsString(),
            log_->Position().SerializeAsString());
  EXPECT_EQ(RowsOf("copy"), RowsOf("log"));
  EXPECT_THAT(RowsOf("copy"), HasSubstr("é"));
  EXPECT_THAT(copy->Snapshots(0, 9), IsOkAndHolds(IsEmpty()))
      << "they tell of another directory";
}

TEST_F(CommitLogCopyTest, AppliesSeveralChangesOrNone) {
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  const size_t begin = changes_.size();
  Grow(4);
  const std::vector<v1::LogChange> changes = {
      *changes_[begin], *changes_[begin + 1], *changes_[begin + 2]};
  std::vector<v1::LogChange> gap = changes;
  gap.push_back(gap[0]);
  EXPECT_THAT(copy->ApplyChanges(gap, 1), IsDataLoss());
  EXPECT_EQ(copy->Position().index(), begin);
  ASSERT_OK(copy->ApplyChanges(changes, 1));
  EXPECT_EQ(copy->Position().index(), begin + 3);
  ASSERT_OK(copy->ApplyChanges({*changes_[begin + 3]}, 1));
  EXPECT_EQ(RowsOf("copy"), RowsOf("log"));
}

TEST_F(CommitLogCopyTest, APositionOutlivesTheProcess) {
  Grow(3);
  const v1::LogPosition position = log_->Position();
  log_ = Open("log");
  EXPECT_EQ(log_->Position().SerializeAsString(), position.SerializeAsString());
}

TEST_F(CommitLogCopyTest, SnapshotsAreNoChangeOfTheRun) {
  LogBatch batch{.snapshots = {{.head = TestCommit(0).head, .file = "f"}}};
  const size_t changes = changes_.size();
  ASSERT_OK(log_->Apply(batch));
  EXPECT_THAT(changes_, SizeIs(changes));
  EXPECT_EQ(log_->Position().index(), changes);
}

TEST_F(CommitLogCopyTest, RefusesAChangeThatDoesNotContinueIt) {
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  const size_t begin = changes_.size();
  Grow(2);
  const auto refused = IsDataLoss("does not continue");
  EXPECT_THAT(copy->ApplyChanges({*changes_[begin + 1]}, 1), refused) << "gap";
  EXPECT_THAT(copy->ApplyChanges({*changes_[begin - 1]}, 1), refused)
      << "again";
  EXPECT_THAT(copy->ApplyChanges({*changes_[begin]}, 2), refused) << "epoch";
  v1::LogChange altered = *changes_[begin];
  altered.mutable_rows()->back() ^= 1;
  EXPECT_THAT(copy->ApplyChanges({altered}, 1), refused);
  EXPECT_OK(copy->ApplyChanges({*changes_[begin]}, 1));
}

TEST_F(CommitLogCopyTest, RefusesAChangeOfARowThatDiffers) {
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  {
    ASSERT_OK_AND_ASSIGN(
        SqliteDatabase database,
        SqliteDatabase::Open(PathOf("copy"),
                             SqliteDatabase::Mode::kReadWriteCreate));
    ASSERT_OK(database.Execute("UPDATE run SET paused = 'by hand'"));
  }
  const size_t begin = changes_.size();
  LogBatch batch{.flags = RunFlags{.paused = true, .pause_reason = "r"}};
  ASSERT_OK(log_->Apply(batch));
  EXPECT_THAT(copy->ApplyChanges({*changes_[begin]}, 1),
              IsDataLoss("a row differs"));
  EXPECT_EQ(copy->Position().index(), begin);
}

TEST_F(CommitLogCopyTest, TheCopyThatTakesOverHasAHigherEpoch) {
  EXPECT_THAT(log_->TakeOver(), IsFailedPrecondition());
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  EXPECT_TRUE(copy->LoadLeader()->is_followed);
  EXPECT_THAT(copy->TakeOver(), IsOkAndHolds(2));
  EXPECT_FALSE(copy->LoadLeader()->is_followed);
  EXPECT_EQ(copy->LoadLeader()->address, "leader:7070");
  EXPECT_EQ(copy->LoadLeader()->config.name(), "leading");
  EXPECT_EQ(Open("copy")->LoadRun()->epoch, 2);
  // One change by both makes different logs.
  LogBatch batch{.events = {{.kind = "k", .time = kStart}}};
  LogBatch same = batch;
  ASSERT_OK(log_->Apply(batch));
  ASSERT_OK(copy->Apply(same));
  EXPECT_EQ(copy->Position().index(), log_->Position().index());
  EXPECT_NE(copy->Position().hash(), log_->Position().hash());
}

TEST_F(CommitLogCopyTest, ATakeoverReusesNoEpochThatTheCopyHasHeardOf) {
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  const v1::LogPosition position = copy->Position();
  ASSERT_OK(copy->Follow({.address = "new:7070"}, 5));
  ASSERT_OK(copy->Follow({.address = "old:7070"}, 3));
  EXPECT_EQ(copy->LoadRun()->epoch, 5);
  EXPECT_EQ(copy->Position().SerializeAsString(), position.SerializeAsString());
  EXPECT_EQ(Open("copy")->LoadRun()->epoch, 5) << "it is durable";
  EXPECT_THAT(copy->TakeOver(std::nullopt, 7), IsOkAndHolds(8));
}

// This holds for any log.
TEST_F(CommitLogCopyTest, AnElectionGivesTheEpoch) {
  EXPECT_THAT(log_->TakeOver(7), IsOkAndHolds(7));
  EXPECT_THAT(log_->TakeOver(5), IsOkAndHolds(7)) << "epochs only rise";
  const std::unique_ptr<CommitLog> copy = Copy("copy");
  EXPECT_FALSE(copy->LoadLeader()->is_elected);
  EXPECT_THAT(copy->TakeOver(8), IsOkAndHolds(8));
  EXPECT_FALSE(copy->LoadLeader()->is_followed);
  EXPECT_TRUE(copy->LoadLeader()->is_elected);
  EXPECT_THAT(copy->TakeOver(), IsOkAndHolds(9)) << "an operator decides";
  EXPECT_FALSE(copy->LoadLeader()->is_elected);
}

}  // namespace
}  // namespace causeway
