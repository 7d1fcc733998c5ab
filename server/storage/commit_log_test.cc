// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/commit_log.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "server/storage/sqlite.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

RunRecord TestRun() {
  RunRecord run{.run_id = "run-1", .created_at = kStart};
  run.config.set_name("test");
  run.config.mutable_outer_optimizer()->set_learning_rate(0.1 + 0.2);
  run.plan.add_fragments()->set_size(12);
  run.plan.add_fragments()->set_size(34);
  return run;
}

CommitRecord TestCommit(uint32_t fragment, uint64_t version) {
  CommitRecord commit;
  commit.head.set_fragment(fragment);
  commit.head.set_version(version);
  commit.head.set_digest(std::string("\x00\xff digest bytes", 15) +
                         static_cast<char>(version));
  if (version > 0) {
    commit.update_file = absl::StrCat("f", fragment, "v", version);
  }
  commit.merged_norm = 0.1 * static_cast<double>(version);
  commit.committed_at = kStart + absl::Seconds(version);
  return commit;
}

ContributionRecord TestContribution(std::string island, uint64_t base_version,
                                    ContributionFate fate) {
  return {.fragment = 1,
          .base_version = base_version,
          .island_id = std::move(island),
          .incarnation = 3,
          .tokens = 1000 + base_version,
          .inner_steps = 10,
          .weight = 0.25,
          .digest = std::string("\xfe\0 fourteen more", 16),
          .fate = fate,
          .at = kStart};
}

class CommitLogTest : public testing::Test {
 protected:
  CommitLogTest()
      : directory_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_(absl::StrCat(directory_, "/run.sqlite3")) {
    EXPECT_OK(CreateDirectory(directory_));
  }

  std::unique_ptr<CommitLog> Open() {
    absl::StatusOr<std::unique_ptr<CommitLog>> log = CommitLog::Open(path_);
    EXPECT_OK(log);
    return log.ok() ? *std::move(log) : nullptr;
  }

  // Returns a log with TestRun and version 0 of both fragments.
  std::unique_ptr<CommitLog> OpenWithRun() {
    std::unique_ptr<CommitLog> log = Open();
    LogBatch batch{.commits = {TestCommit(0, 0), TestCommit(1, 0)}};
    EXPECT_OK(log->CreateRun(TestRun()));
    EXPECT_OK(log->Apply(batch));
    return log;
  }

  static absl::Status CommitVersion(CommitLog& log, uint64_t version) {
    LogBatch batch{.commits = {TestCommit(1, version)}};
    return log.Apply(batch);
  }

  static uint64_t NewestVersion(CommitLog& log) {
    const auto history = log.History(1, 1);
    EXPECT_OK(history);
    return history.value().at(0).head.version();
  }

  const std::string directory_;
  const std::string path_;
};

TEST_F(CommitLogTest, ARunComesBackAsItWas) {
  OpenWithRun();
  ASSERT_OK_AND_ASSIGN(const RunRecord run, Open()->LoadRun());
  const RunRecord want = TestRun();
  using google::protobuf::util::MessageDifferencer;
  EXPECT_EQ(run.run_id, want.run_id);
  EXPECT_TRUE(MessageDifferencer::Equals(run.config, want.config));
  EXPECT_TRUE(MessageDifferencer::Equals(run.plan, want.plan));
  EXPECT_EQ(run.created_at, want.created_at);
}

TEST_F(CommitLogTest, ThereIsOneRun) {
  EXPECT_THAT(Open()->LoadRun(), IsNotFound());
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  EXPECT_THAT(log->CreateRun(TestRun()), IsAlreadyExists(path_));
}

TEST_F(CommitLogTest, HeadsAreTheNewestVersionsAndHistoryIsKept) {
  {
    const std::unique_ptr<CommitLog> log = OpenWithRun();
    for (uint64_t version = 1; version <= 11; ++version) {
      ASSERT_OK(CommitVersion(*log, version));
    }
  }
  const std::unique_ptr<CommitLog> log = Open();
  ASSERT_OK_AND_ASSIGN(const std::vector<CommitRecord> heads, log->Heads());
  ASSERT_THAT(heads, SizeIs(2));
  EXPECT_EQ(heads[0].head.version(), 0);
  EXPECT_EQ(heads[0].update_file, "");
  const CommitRecord want = TestCommit(1, 11);
  EXPECT_EQ(heads[1].head.fragment(), 1);
  EXPECT_EQ(heads[1].head.version(), 11);
  EXPECT_EQ(heads[1].head.digest(), want.head.digest());
  EXPECT_EQ(heads[1].update_file, want.update_file);
  EXPECT_EQ(heads[1].merged_norm, want.merged_norm);
  EXPECT_EQ(heads[1].committed_at, want.committed_at);

  ASSERT_OK_AND_ASSIGN(const std::vector<CommitRecord> history,
                       log->History(1, 3));
  EXPECT_THAT(history, ElementsAre(Field(&CommitRecord::update_file, "f1v11"),
                                   Field(&CommitRecord::update_file, "f1v10"),
                                   Field(&CommitRecord::update_file, "f1v9")));
  ASSERT_OK_AND_ASSIGN(const CommitRecord fourth, log->FindCommit(1, 4));
  EXPECT_EQ(fourth.update_file, "f1v4");
  EXPECT_THAT(log->FindCommit(0, 4), IsNotFound());
}

TEST_F(CommitLogTest, VersionsRiseByOne) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  for (const uint64_t version : {0, 2}) {
    EXPECT_THAT(CommitVersion(*log, version),
                IsFailedPrecondition("1 is the next"));
  }
  EXPECT_OK(CommitVersion(*log, 1));
}

TEST_F(CommitLogTest, ABatchIsAllOrNothing) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  LogBatch first{
      .contributions = {TestContribution("a", 0, ContributionFate::kMerged)}};
  ASSERT_OK(log->Apply(first));
  LogBatch second{
      .commits = {TestCommit(1, 1)},
      .contributions = {TestContribution("b", 0, ContributionFate::kMerged),
                        TestContribution("a", 0, ContributionFate::kMerged)},
      .events = {{.kind = "round_merged", .time = kStart}}};
  EXPECT_THAT(log->Apply(second),
              IsAlreadyExists("a (incarnation 3) to fragment 1 version 0"));
  EXPECT_EQ(NewestVersion(*log), 0);
  EXPECT_THAT(log->MergedContributions(1, 0), IsOkAndHolds(SizeIs(1)));
  EXPECT_THAT(log->EventsAfter(0, 10), IsOkAndHolds(IsEmpty()));
  second.contributions.pop_back();
  EXPECT_OK(log->Apply(second));
  EXPECT_THAT(log->NewestEvent(), IsOkAndHolds(1));
}

TEST_F(CommitLogTest, TheLedgerAddsUpByFate) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  LogBatch batch{
      .contributions = {TestContribution("b", 0, ContributionFate::kMerged),
                        TestContribution("a", 0, ContributionFate::kMerged),
                        TestContribution("a", 1, ContributionFate::kMerged),
                        TestContribution("c", 1, ContributionFate::kLate),
                        // The island asks again: the same lateness is noted
                        // once.
                        TestContribution("c", 1, ContributionFate::kLate),
                        TestContribution("c", 1, ContributionFate::kPartial),
                        TestContribution("c", 2, ContributionFate::kLate)}};
  ASSERT_OK(log->Apply(batch));
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 0));
  std::map<TokenLedger::Fate, uint64_t> tokens;
  for (const CoordinatorHistory::Settled& sum : history.settled) {
    EXPECT_EQ(sum.fragment, 1);
    tokens[sum.fate] += sum.tokens;
  }
  EXPECT_THAT(tokens, ElementsAre(Pair(TokenLedger::Fate::kMerged, 3001),
                                  Pair(TokenLedger::Fate::kPartial, 1001)));
  ASSERT_OK_AND_ASSIGN(const std::vector<ContributionRecord> merged,
                       log->MergedContributions(1, 0));
  ASSERT_THAT(merged, SizeIs(2));
  EXPECT_EQ(merged[0].island_id, "a");
  EXPECT_EQ(merged[0].incarnation, 3);
  EXPECT_EQ(merged[0].tokens, 1000);
  EXPECT_EQ(merged[0].inner_steps, 10);
  EXPECT_EQ(merged[0].weight, 0.25);
  EXPECT_EQ(merged[0].digest, std::string("\xfe\0 fourteen more", 16));
  EXPECT_EQ(merged[0].at, kStart);
  EXPECT_EQ(merged[1].island_id, "b");
  ASSERT_OK_AND_ASSIGN(const std::vector<ContributionRecord> of_b,
                       log->MergedContributions(1, 0, "b"));
  ASSERT_THAT(of_b, SizeIs(1));
  EXPECT_EQ(of_b[0].island_id, "b");
  EXPECT_THAT(log->MergedContributions(1, 0, "c"), IsOkAndHolds(IsEmpty()));
}

TEST_F(CommitLogTest, MembersAreTheNewestIncarnationsWithTheirSums) {
  {
    const std::unique_ptr<CommitLog> log = OpenWithRun();
    Member old{.island_id = "a",
               .incarnation = 2,
               .instance_id = 5,
               .state = v1::IslandStatus::DIVERGED,
               .joined_at = kStart};
    Member member{.island_id = "a",
                  .incarnation = 3,
                  .instance_id = 0xffffffffffffffff,
                  .description = "it's a host",
                  .joined_at = kStart + absl::Microseconds(5),
                  .place = 7,
                  .first_contribution_version = {4, 0}};
    Member other{.island_id = "b", .incarnation = 1, .joined_at = kStart};
    LogBatch batch{
        .members = {member, old, other},
        .contributions = {TestContribution("a", 0, ContributionFate::kMerged),
                          TestContribution("a", 1, ContributionFate::kMerged),
                          TestContribution("a", 2, ContributionFate::kLate)}};
    ASSERT_OK(log->Apply(batch));
    other.state = v1::IslandStatus::EVICTED;
    other.ended_at = kStart + absl::Hours(1);
    other.reason = "silent for 10 s";
    LogBatch end{.members = {other}};
    ASSERT_OK(log->Apply(end));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<Member> members, Open()->Members());
  ASSERT_THAT(members, SizeIs(2));
  const Member& a = members[0];
  EXPECT_EQ(a.island_id, "a");
  EXPECT_EQ(a.incarnation, 3);
  EXPECT_EQ(a.instance_id, 0xffffffffffffffff);
  EXPECT_THAT(a.joined_since_divergence, ElementsAre(0xffffffffffffffff));
  EXPECT_EQ(a.state, v1::IslandStatus::LIVE);
  EXPECT_EQ(a.description, "it's a host");
  EXPECT_EQ(a.joined_at, kStart + absl::Microseconds(5));
  EXPECT_EQ(a.ended_at, absl::InfiniteFuture());
  EXPECT_EQ(a.place, 7);
  EXPECT_THAT(a.first_contribution_version, ElementsAre(4, 0));
  EXPECT_EQ(a.contributions_merged, 2);
  EXPECT_EQ(a.tokens_merged, 2001);
  const Member& b = members[1];
  EXPECT_EQ(b.state, v1::IslandStatus::EVICTED);
  EXPECT_THAT(b.joined_since_divergence, IsEmpty());
  EXPECT_EQ(b.ended_at, kStart + absl::Hours(1));
  EXPECT_EQ(b.reason, "silent for 10 s");
  EXPECT_THAT(b.first_contribution_version, IsEmpty());
  EXPECT_EQ(b.tokens_merged, 0);
}

TEST_F(CommitLogTest, ChangesOfAMemberAreWritten) {
  {
    const std::unique_ptr<CommitLog> log = OpenWithRun();
    Member member{.island_id = "a",
                  .incarnation = 1,
                  .joined_at = kStart,
                  .first_contribution_version = {4, 5}};
    LogBatch joined{.members = {member}};
    ASSERT_OK(log->Apply(joined));
    member.first_contribution_version = {3, 5};
    member.draining = true;
    LogBatch changed{.members = {member}};
    ASSERT_OK(log->Apply(changed));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<Member> members, Open()->Members());
  ASSERT_THAT(members, SizeIs(1));
  EXPECT_THAT(members[0].first_contribution_version, ElementsAre(3, 5));
  EXPECT_TRUE(members[0].draining);
  EXPECT_EQ(members[0].state, v1::IslandStatus::LIVE);
}

TEST_F(CommitLogTest, ThreadsMayShareALog) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  constexpr int kThreads = 4;
  constexpr int kBatches = 25;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int batch = 0; batch < kBatches; ++batch) {
        LogBatch events{.events = {{.kind = "island_joined", .time = kStart}}};
        EXPECT_OK(log->Apply(events));
        EXPECT_GT(log->NewestEvent().value(), batch) << "an event is not there";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(log->EventsAfter(0, UINT64_MAX),
              IsOkAndHolds(SizeIs(kThreads * kBatches)));
}

TEST_F(CommitLogTest, ToolsReadWhileTheCoordinatorWrites) {
  EXPECT_THAT(CommitLog::OpenReadOnly(path_), IsNotFound(path_));
  const std::unique_ptr<CommitLog> writer = OpenWithRun();
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CommitLog> reader,
                       CommitLog::OpenReadOnly(path_));
  for (uint64_t version = 1; version <= 3; ++version) {
    ASSERT_OK(CommitVersion(*writer, version));
    EXPECT_EQ(NewestVersion(*reader), version);
  }
  EXPECT_THAT(CommitVersion(*reader, 4),
              IsFailedPrecondition("for reading only"));
}

TEST_F(CommitLogTest, RefusesForeignOtherAndDamagedDatabases) {
  {
    ASSERT_OK_AND_ASSIGN(
        SqliteDatabase foreign,
        SqliteDatabase::Open(path_, SqliteDatabase::Mode::kReadWriteCreate));
    ASSERT_OK(foreign.Execute("CREATE TABLE t (x)"));
  }
  EXPECT_THAT(CommitLog::Open(path_), IsFailedPrecondition("another program"));
  ASSERT_OK(RemoveFile(path_));

  Open();
  for (const char* schema : {"6", "99"}) {
    {
      ASSERT_OK_AND_ASSIGN(
          SqliteDatabase other,
          SqliteDatabase::Open(path_, SqliteDatabase::Mode::kReadWriteCreate));
      ASSERT_OK(other.Execute(absl::StrCat("PRAGMA user_version = ", schema)));
    }
    const auto is_refused = IsFailedPrecondition(
        absl::StrCat("another version of Causeway (schema ", schema));
    EXPECT_THAT(CommitLog::Open(path_), is_refused);
    EXPECT_THAT(CommitLog::OpenReadOnly(path_), is_refused);
  }

  ASSERT_OK(WriteFileAtomically(path_, {std::string(8192, 'x')}));
  EXPECT_THAT(CommitLog::Open(path_), IsDataLoss(path_));
}

TEST_F(CommitLogTest, FindsADamagedStructure) {
  EXPECT_OK(OpenWithRun()->CheckStructure());
  ASSERT_OK_AND_ASSIGN(std::string text, ReadFile(path_));
  // The schema, on the first page, stays as it is.
  ASSERT_GT(text.size(), 8192);
  for (size_t i = 4096; i < text.size(); i += 4096) text[i] ^= 1;
  ASSERT_OK(WriteFileAtomically(path_, {text}));
  const auto log = CommitLog::Open(path_);
  EXPECT_THAT(log.ok() ? (*log)->CheckStructure() : log.status(),
              IsDataLoss(path_));
}

v1::ValidationPoint TestPoint(uint64_t version) {
  v1::ValidationPoint point;
  point.mutable_validation()->set_version(version);
  point.mutable_validation()->set_loss(1.0 / static_cast<double>(version));
  point.set_island_id("a");
  *point.mutable_time() = ToTimestamp(kStart + absl::Seconds(version));
  return point;
}

TEST_F(CommitLogTest, TheHistoryComesBackAsItWas) {
  {
    const std::unique_ptr<CommitLog> log = OpenWithRun();
    v1::TrainingPoint training;
    training.set_version(4);
    training.add_islands()->set_loss(0.1 + 0.2);
    LogBatch batch{.training = {training},
                   .validations = {TestPoint(3), TestPoint(6)}};
    ASSERT_OK(log->Apply(batch));
    // This is written twice, as after a write of unknown outcome.
    ASSERT_OK(log->Apply(batch));
  }
  const std::unique_ptr<CommitLog> log = Open();
  ASSERT_OK_AND_ASSIGN(const v1::GetHistoryResponse points,
                       log->HistoryAfter({}));
  ASSERT_THAT(points.training(), SizeIs(1));
  EXPECT_EQ(points.training(0).islands(0).loss(), 0.1 + 0.2);
  ASSERT_THAT(points.validations(), SizeIs(2));
  EXPECT_EQ(points.validations(1).validation().loss(), 1.0 / 6);
  EXPECT_FALSE(points.more());
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 8));
  EXPECT_EQ(history.training->version(), 4);
  EXPECT_EQ(history.validation->validation().version(), 6);
}

TEST_F(CommitLogTest, ALongHistoryIsThinnedOutEvenly) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  constexpr uint64_t kVersions = 3000;
  LogBatch batch;
  for (uint64_t version = 1; version <= kVersions; ++version) {
    batch.validations.push_back(TestPoint(version));
  }
  ASSERT_OK(log->Apply(batch));
  ASSERT_OK_AND_ASSIGN(const v1::GetHistoryResponse history,
                       log->HistoryAfter({}));
  ASSERT_FALSE(history.more());
  const std::vector<v1::ValidationPoint> points(history.validations().begin(),
                                                history.validations().end());
  EXPECT_LE(points.size(), CommitLog::kMostPoints);
  EXPECT_GE(points.size(), CommitLog::kMostPoints * 7 / 8);
  EXPECT_EQ(points.front().validation().version(), 1);
  EXPECT_EQ(points.back().validation().version(), kVersions);
  uint64_t widest = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    widest = std::max(widest, points[i].validation().version() -
                                  points[i - 1].validation().version());
  }
  EXPECT_LE(widest, 2 * kVersions / points.size());
  // The rows are gone, too.
  ASSERT_OK_AND_ASSIGN(
      SqliteDatabase database,
      SqliteDatabase::Open(path_, SqliteDatabase::Mode::kReadOnly));
  ASSERT_OK_AND_ASSIGN(const int64_t rows,
                       database.QueryInt("SELECT count(*) FROM history"));
  EXPECT_EQ(rows, points.size());
}

TEST_F(CommitLogTest, TheHistoryIsReadInPages) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  LogBatch batch;
  v1::TrainingPoint training;
  for (int i = 0; i < 64; ++i) {
    training.add_islands()->set_island_id(std::string(64, 'a'));
  }
  constexpr uint64_t kVersions = 200;
  for (uint64_t version = 1; version <= kVersions; ++version) {
    training.set_version(version);
    batch.training.push_back(training);
    batch.validations.push_back(TestPoint(version));
  }
  ASSERT_OK(log->Apply(batch));
  const uint64_t point_bytes = training.ByteSizeLong();
  v1::GetHistoryRequest request;
  uint64_t pages = 0;
  for (bool more = true; more; ++pages) {
    ASSERT_OK_AND_ASSIGN(const v1::GetHistoryResponse page,
                         log->HistoryAfter(request));
    EXPECT_LT(page.ByteSizeLong(),
              CommitLog::kHistoryPageBytes + 2 * point_bytes);
    for (const v1::TrainingPoint& point : page.training()) {
      EXPECT_EQ(point.version(), request.training_after() + 1);
      request.set_training_after(point.version());
    }
    for (const v1::ValidationPoint& point : page.validations()) {
      EXPECT_EQ(point.validation().version(), request.validation_after() + 1);
      request.set_validation_after(point.validation().version());
    }
    more = page.more();
  }
  EXPECT_EQ(request.training_after(), kVersions);
  EXPECT_EQ(request.validation_after(), kVersions);
  EXPECT_GE(pages, kVersions * point_bytes / CommitLog::kHistoryPageBytes);
}

TEST_F(CommitLogTest, SnapshotsAreTheNewestOfTheirFragment) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  for (uint64_t version = 1; version <= 4; ++version) {
    ASSERT_OK(CommitVersion(*log, version));
    LogBatch batch;
    batch.snapshots.push_back({.head = TestCommit(1, version).head,
                               .file = absl::StrCat("f", version)});
    // It may be noted again.
    for (int i = 0; i < 2; ++i) ASSERT_OK(log->Apply(batch));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<SnapshotRecord> snapshots,
                       log->Snapshots(1, 2));
  ASSERT_THAT(snapshots, SizeIs(2));
  EXPECT_EQ(snapshots[0].file, "f4");
  EXPECT_EQ(snapshots[0].head.DebugString(),
            TestCommit(1, 4).head.DebugString());
  EXPECT_EQ(snapshots[1].file, "f3");
  EXPECT_THAT(log->Snapshots(0, 2), IsOkAndHolds(IsEmpty()));
}

// The child commits as fast as it can and confirms each commit, until it is
// killed at an arbitrary moment. Every confirmed commit must be there.
TEST_F(CommitLogTest, ACommitThatWasConfirmedSurvivesSigkill) {
  OpenWithRun();
  uint64_t confirmed = 0;
  for (int kills = 0; kills < 5; ++kills) {
    int reports[2];
    ASSERT_EQ(pipe(reports), 0);
    const pid_t child = fork();
    if (child == 0) {
      absl::StatusOr<std::unique_ptr<CommitLog>> log = CommitLog::Open(path_);
      if (!log.ok()) _exit(1);
      for (uint64_t version = NewestVersion(**log) + 1;; ++version) {
        if (!CommitVersion(**log, version).ok()) _exit(1);
        if (write(reports[1], &version, sizeof(version)) < 0) _exit(1);
      }
    }
    close(reports[1]);
    for (int i = 0; i < 20 + kills; ++i) {
      ASSERT_EQ(read(reports[0], &confirmed, sizeof(confirmed)),
                sizeof(confirmed));
    }
    kill(child, SIGKILL);
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(wait_status));
    while (read(reports[0], &confirmed, sizeof(confirmed)) > 0) continue;
    close(reports[0]);

    const std::unique_ptr<CommitLog> log = Open();
    ASSERT_OK_AND_ASSIGN(const std::vector<CommitRecord> history,
                         log->History(1, UINT64_MAX));
    // The commit under way may be there as well; nothing else is.
    EXPECT_GE(history[0].head.version(), confirmed);
    EXPECT_LE(history[0].head.version(), confirmed + 1);
    EXPECT_THAT(history, SizeIs(history[0].head.version() + 1));
  }
}

}  // namespace
}  // namespace causeway
