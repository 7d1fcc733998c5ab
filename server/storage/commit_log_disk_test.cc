// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a commit log whose disk fails: what it knows of a failed write, and how
// it continues.
#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/commit_log.h"
#include "server/storage/testing/failing_disk.h"

namespace causeway {
namespace {

using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

class CommitLogDiskTest : public testing::Test {
 protected:
  CommitLogDiskTest()
      : directory_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_OK(CreateDirectory(directory_));
  }
  ~CommitLogDiskTest() override { disk_.Repair(); }

  std::unique_ptr<CommitLog> Open() {
    absl::StatusOr<std::unique_ptr<CommitLog>> log =
        CommitLog::Open(directory_ + "/run.sqlite3");
    EXPECT_OK(log);
    return log.ok() ? *std::move(log) : nullptr;
  }

  // Returns a log with version 0 of one fragment.
  std::unique_ptr<CommitLog> OpenWithRun() {
    std::unique_ptr<CommitLog> log = Open();
    RunRecord run{.run_id = "run-1", .created_at = kStart};
    run.plan.add_fragments()->set_size(12);
    LogBatch batch{.commits = {Commit(0)}};
    EXPECT_OK(log->CreateRun(run));
    EXPECT_OK(log->Apply(batch));
    return log;
  }

  static CommitRecord Commit(uint64_t version) {
    CommitRecord commit{.committed_at = kStart};
    commit.head.set_version(version);
    commit.head.set_digest(std::string(16, 'd'));
    return commit;
  }
  static absl::Status CommitVersion(CommitLog& log, uint64_t version) {
    LogBatch batch{.commits = {Commit(version)}};
    return log.Apply(batch);
  }
  static uint64_t NewestVersion(CommitLog& log) {
    const auto history = log.History(0, 1);
    EXPECT_OK(history);
    return history.value().at(0).head.version();
  }

  const std::string directory_;
  FailingDisk& disk_ = TheFailingDisk();
};

TEST_F(CommitLogDiskTest, AFailedSyncStopsAllWritingUntilReopened) {
  {
    const std::unique_ptr<CommitLog> log = OpenWithRun();
    disk_.sync_error = EIO;
    EXPECT_THAT(CommitVersion(*log, 1), IsUnknown("outcome unknown"));
    disk_.sync_error = 0;
    // The disk works again, but its content is unknown.
    EXPECT_TRUE(log->InDoubt());
    EXPECT_THAT(CommitVersion(*log, 1),
                IsFailedPrecondition("of an earlier one is unknown"));
    LogBatch events{.events = {{.kind = "island_left", .time = kStart}}};
    EXPECT_THAT(log->Apply(events), IsFailedPrecondition());
    EXPECT_THAT(log->EventsAfter(0, 10), IsOkAndHolds(IsEmpty()));
  }
  const std::unique_ptr<CommitLog> log = Open();
  EXPECT_FALSE(log->InDoubt());
  EXPECT_OK(CommitVersion(*log, NewestVersion(*log) + 1));
}

TEST_F(CommitLogDiskTest, WritingContinuesAfterADoubtfulCommit) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  std::set<bool> seen;
  // Different numbers of syncs fail, so that the reopened database has the
  // transaction or not.
  for (int failing = 1; failing <= 4; ++failing) {
    const uint64_t version = NewestVersion(*log);
    disk_.sync_error = EIO;
    disk_.failing_syncs = failing;
    const absl::Status committed = CommitVersion(*log, version + 1);
    if (committed.ok()) continue;
    ASSERT_THAT(committed, IsUnknown());
    absl::StatusOr<DoubtfulWrite> write = log->Reconcile();
    for (int tries = 0; !write.ok() && tries < 8; ++tries) {
      EXPECT_TRUE(log->InDoubt()) << write.status();
      write = log->Reconcile();
    }
    disk_.Repair();
    ASSERT_OK(write);
    EXPECT_EQ(write->fragment, 0);
    seen.insert(write->found);
    EXPECT_FALSE(log->InDoubt());
    EXPECT_EQ(NewestVersion(*log), version + (write->found ? 1 : 0));
    EXPECT_OK(CommitVersion(*log, NewestVersion(*log) + 1));
    EXPECT_EQ(NewestVersion(*Open()), NewestVersion(*log));
  }
  EXPECT_EQ(seen.size(), 2) << "both come about";
}

TEST_F(CommitLogDiskTest, ABatchOfEventsInDoubtIsKnownByItsEvents) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  LogBatch batch{.events = {{.kind = "island_joined", .time = kStart},
                            {.kind = "island_left", .time = kStart}}};
  disk_.sync_error = EIO;
  EXPECT_THAT(log->Apply(batch), IsUnknown());
  disk_.sync_error = 0;
  ASSERT_OK_AND_ASSIGN(const DoubtfulWrite write, log->Reconcile());
  EXPECT_EQ(write.fragment, std::nullopt);
  EXPECT_THAT(log->EventsAfter(0, 10),
              IsOkAndHolds(SizeIs(write.found ? 2 : 0)));
  EXPECT_OK(log->Apply(batch));
}

TEST_F(CommitLogDiskTest, AFailingDiskLeavesTheDoubtButIsRead) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  disk_.sync_error = EIO;
  EXPECT_THAT(CommitVersion(*log, 1), IsUnknown());
  EXPECT_THAT(log->Reconcile(), Not(IsOk()));
  EXPECT_TRUE(log->InDoubt());
  EXPECT_OK(log->Heads());
  disk_.sync_error = 0;
  EXPECT_OK(log->Reconcile());
  EXPECT_OK(CommitVersion(*log, NewestVersion(*log) + 1));
}

TEST_F(CommitLogDiskTest, AFullDiskFailsTheCommitAndNothingElse) {
  const std::unique_ptr<CommitLog> log = OpenWithRun();
  disk_.write_error = ENOSPC;
  EXPECT_THAT(CommitVersion(*log, 1), IsResourceExhausted("full"));
  EXPECT_EQ(NewestVersion(*log), 0);
  disk_.write_error = 0;
  EXPECT_OK(CommitVersion(*log, 1));
  EXPECT_EQ(NewestVersion(*Open()), 1);
}

// After a clean stop, SQLite first has to make its index.
TEST_F(CommitLogDiskTest, AFullDiskIsNoDamageAtTheStart) {
  OpenWithRun();
  const std::string path = directory_ + "/run.sqlite3";
  disk_.write_error = ENOSPC;
  EXPECT_THAT(CommitLog::Open(path), IsResourceExhausted("No space left"));
  EXPECT_THAT(CommitLog::OpenReadOnly(path),
              IsResourceExhausted("No space left"));
  EXPECT_OK(CommitLog::OpenUnused(path));
}

}  // namespace
}  // namespace causeway
