// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a follower whose disk, or whose leader's disk, fails.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/replication/copy_stream.h"
#include "server/replication/follower.h"
#include "server/replication/testing/follower_test_base.h"
#include "server/storage/commit_log.h"
#include "server/storage/sqlite.h"
#include "server/storage/testing/failing_disk.h"

namespace causeway {
namespace {

class FollowerFaultsTest : public FollowerTest {
 protected:
  void TearDown() override {
    disk_.Repair();
    FollowerTest::TearDown();
  }

  // The next `sound` syncs of the copy's log succeed, and then `failing` fail.
  void FailSyncs(int sound, int failing) {
    disk_.path = kCopyLog;
    disk_.sound_syncs = sound;
    disk_.failing_syncs = failing;
    disk_.sync_error = EIO;
  }
  // Waits until the copy has the first `index` changes.
  bool AwaitChanges(uint64_t index) {
    return Await(
        [&](const Follower::View& view) { return view.changes >= index; });
  }

  // Waits until the copy has noted snapshots of this version of both fragments.
  bool AwaitSnapshots(uint64_t version) {
    const auto has_snapshot = [&](uint32_t fragment) {
      const auto log = CommitLog::OpenReadOnly(copy_dir() + "/run.sqlite3");
      if (!log.ok()) return false;
      const auto newest = (*log)->Snapshots(fragment, 1);
      return newest.ok() && !newest->empty() &&
             newest->front().head.version() == version;
    };
    return Await([&](const Follower::View&) {
      return has_snapshot(0) && has_snapshot(1);
    });
  }

  // Changes the copy's log behind its coordinator's back.
  void ExecuteInCopy(const std::string& sql) {
    ASSERT_OK_AND_ASSIGN(
        SqliteDatabase log,
        SqliteDatabase::Open(copy_dir() + "/run.sqlite3",
                             SqliteDatabase::Mode::kReadWriteCreate));
    ASSERT_OK(log.Execute(sql));
  }
  absl::StatusOr<std::unique_ptr<Follower>> OpenCandidate() {
    return Follower::Open(
        {.state_dir = copy_dir(), .name = "f", .is_candidate = true});
  }

  static constexpr char kCopyLog[] = "-copy/run.sqlite3";

  FailingDisk& disk_ = TheFailingDisk();
};

TEST_F(FollowerFaultsTest, KeepsFollowingAfterADoubtAboutASnapshot) {
  StartLeader("storage { snapshot_log_ratio: 0 }");
  std::atomic<bool> is_armed = false;
  std::atomic<bool> is_held = false;
  std::atomic<uint64_t> index = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    is_held.wait(true);
    if (response.change().commits().empty() || !is_armed.exchange(false)) {
      return true;
    }
    // The write after this change records the version's snapshot.
    index = response.change().position().index();
    EXPECT_TRUE(AwaitChanges(index - 1));
    FailSyncs(/*sound=*/1, /*failing=*/1);
    is_held = true;
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  ASSERT_TRUE(AwaitSnapshots(1));
  is_armed = true;
  Contribute(0);
  ASSERT_TRUE(
      Await([&](const Follower::View&) { return disk_.failing_syncs == 0; }));
  EXPECT_EQ(follower_->view().changes, index);
  is_held = false;
  is_held.notify_all();
  Train();
  ASSERT_TRUE(AwaitAll());
  EXPECT_OK(follower_->view().ended);
  ExpectTheSameRun();
}

TEST_F(FollowerFaultsTest, KeepsACopyThatItCannotOpenForNow) {
  StartLeader();
  std::atomic<int> logs = 0;
  std::atomic<bool> is_armed = false;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.object().kind() == v1::ReplicatedObject::LOG) ++logs;
    if (!response.change().commits().empty() && is_armed.exchange(false)) {
      EXPECT_TRUE(AwaitChanges(response.change().position().index() - 1));
      // The database cannot undo the write either, so the change is found when
      // the database is reopened.
      FailSyncs(/*sound=*/0, /*failing=*/2);
    }
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  // Opening the copy writes the update of the change in doubt. The disk is full
  // for the first try.
  const std::string update =
      absl::StrCat(copy_dir(), "/updates/update-0000-v00000002.safetensors",
                   AtomicFileWriter::kTemporaryMarker, getpid());
  ASSERT_EQ(symlink("/dev/full", update.c_str()), 0);
  is_armed = true;
  Contribute(0);
  ASSERT_TRUE(driver_.AwaitVersion(0, 2));
  ASSERT_TRUE(AwaitAll());
  EXPECT_FALSE(std::filesystem::is_symlink(update));
  EXPECT_EQ(logs, 1) << "the copy was thrown away";
  ExpectTheSameRun();
}

// The restored leader soon has as many changes as it lost.
TEST_F(FollowerFaultsTest, KeepsItsCopyIfTheLeadersDirectoryWentBack) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  std::atomic<int> runs = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.has_run() && runs++ == 0) {
      response.mutable_run()->mutable_position()->set_index(1);
    }
    return true;
  });
  follower_->Follow(proxy.address());
  // The second refusal comes before the third try.
  ASSERT_TRUE(Await([&](const Follower::View&) { return runs >= 3; }));
  EXPECT_THAT(follower_->view().problem, IsUnavailable("an older log"));
  EXPECT_OK(follower_->view().ended);
  EXPECT_TRUE(follower_->view().is_complete);
  ExpectTheSameRun();
}

TEST_F(FollowerFaultsTest, OutlivesADiskThatTakesNoRecord) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  // Opening this file for writing, or for root writing to it, fails.
  const std::string record =
      absl::StrCat(copy_dir(), "/merges/merge-0000-v00000001.safetensors",
                   AtomicFileWriter::kTemporaryMarker, getpid());
  ASSERT_EQ(symlink("/proc/version", record.c_str()), 0);
  Train();
  ASSERT_TRUE(Await([](const Follower::View& view) {
    return absl::IsResourceExhausted(view.problem);
  }));
  std::filesystem::remove(record);
  EXPECT_TRUE(AwaitAll()) << follower_->view().ended;
}

TEST_F(FollowerFaultsTest, OutlivesAnErrorOfTheLeadersDisk) {
  StartLeader();
  disk_.path = "run.sqlite3.for-f";
  disk_.failing_syncs = 1;
  disk_.sync_error = EIO;
  Follow(leader());
  EXPECT_TRUE(AwaitAll()) << follower_->view().ended;
  EXPECT_EQ(disk_.failing_syncs, 0);
  EXPECT_OK(follower_->view().ended);
}

TEST_F(FollowerFaultsTest, TheLeaderSaysThatTheErrorIsItsOwn) {
  StartLeader();
  v1::FollowRequest::Hello hello;
  hello.set_name("f");
  ASSERT_OK_AND_ASSIGN(CopyStream stream,
                       CopyStream::Begin(driver_.engine().followed(), hello));
  disk_.path = "run.sqlite3.for-f";
  disk_.sync_error = EIO;
  absl::StatusOr<std::optional<grpc::ByteBuffer>> next;
  do {
    next = stream.Next();
  } while (next.ok() && next->has_value());
  EXPECT_THAT(next.status(),
              IsUnavailable("on its own disk", "run.sqlite3.for-f"));
}

TEST_F(FollowerFaultsTest, HearsOfChangesWhileTheLogIsCopiedForOthers) {
  // gRPC has at most 16 threads for calls.
  constexpr int kOthers = 17;
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  disk_.path = "run.sqlite3.for-slow";
  disk_.stands_still = true;
  std::vector<std::unique_ptr<Follower>> others;
  for (int i = 0; i < kOthers; ++i) {
    const std::string name = absl::StrCat("slow-", i);
    ASSERT_OK_AND_ASSIGN(
        others.emplace_back(),
        Follower::Open(
            {.state_dir = absl::StrCat(copy_dir(), "-", name), .name = name}));
    others.back()->Follow(leader());
  }
  ASSERT_TRUE(Await([&](const Follower::View&) {
    return disk_.waiting > 0 && driver_.engine()
                                        .followed()
                                        .feed->Report(driver_.engine().now())
                                        .size() == kOthers + 1;
  }));
  Train();
  Train();
  EXPECT_TRUE(AwaitAll());
  for (const auto& other : others) EXPECT_FALSE(other->view().is_complete);
  disk_.Repair();
  // The others miss no change of the meantime, and no later one.
  for (int times = 0; times < 2; ++times) {
    EXPECT_TRUE(Await([&](const Follower::View& view) {
      return absl::c_all_of(others, [&](const auto& other) {
        return other->view().is_complete &&
               other->view().changes == view.changes;
      });
    }));
    Train();
    EXPECT_TRUE(AwaitAll());
  }
}

TEST_F(FollowerFaultsTest, ATakeoverCountsNoChangeAsLostThatItKeeps) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  disk_.path = kCopyLog;
  disk_.stands_still = true;
  Contribute(0);
  ASSERT_TRUE(Await([](const Follower::View& view) {
    return view.leader_changes > view.changes;
  }));
  v1::PromoteRequest request;
  request.set_force(true);
  absl::StatusOr<v1::PromoteResponse> promoted;
  std::thread promoting([&] { promoted = follower_->Promote(request); });
  // The takeover has ended the call, and waits for the disk.
  EXPECT_TRUE(Await([&](const Follower::View&) {
    return driver_.engine()
        .followed()
        .feed->Report(driver_.engine().now())
        .empty();
  }));
  disk_.Repair();
  promoting.join();
  ASSERT_OK(promoted);
  EXPECT_EQ(promoted->changes_behind(), 0);
}

TEST_F(FollowerFaultsTest, TakesOverEvenIfItsLogLacksTheEvent) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  driver_.StopServing();
  ExecuteInCopy(
      "CREATE TRIGGER refuse BEFORE INSERT ON events "
      "BEGIN SELECT RAISE(ABORT, 'no space left'); END");
  if (HasFatalFailure()) return;
  Lead();
  if (HasFatalFailure()) return;
  EXPECT_EQ(successor_->GetRun().epoch(), 2);
}

TEST_F(FollowerFaultsTest, ATakeoverReusesNoEpochThatItsDiskRefused) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  ExecuteInCopy(
      "CREATE TRIGGER refuse BEFORE UPDATE OF leader ON log "
      "BEGIN SELECT RAISE(ABORT, 'no space left'); END");
  if (HasFatalFailure()) return;
  Proxy proxy(leader(), [](v1::FollowResponse& response) {
    if (response.has_run()) response.mutable_run()->set_epoch(5);
    return true;
  });
  follower_->Follow(proxy.address());
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return view.epoch == 5; }));
  v1::PromoteRequest request;
  request.set_force(true);
  ASSERT_OK_AND_ASSIGN(const v1::PromoteResponse promoted,
                       follower_->Promote(request));
  EXPECT_EQ(promoted.epoch(), 6);
}

TEST_F(FollowerFaultsTest, ATakeoverThatIsFoundAfterADoubtCounts) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  // The log must have changes for its close to sync.
  Train();
  ASSERT_TRUE(AwaitAll());
  driver_.StopServing();
  // All that the leader has sent is written.
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return !view.problem.ok(); }));
  FailSyncs(/*sound=*/0, /*failing=*/2);
  EXPECT_FALSE(follower_->Promote({}).ok());
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return view.is_promoted; }));
  EXPECT_THAT(follower_->Promote({}),
              IsFailedPrecondition("already been promoted"));
  EXPECT_EQ(follower_->view().epoch, 2);
  // The event follower_promoted comes with the next change.
  EXPECT_EQ(follower_->Release().state->TakeFirstEvents().size(), 1);
}

TEST_F(FollowerFaultsTest, AFormerLeaderWhoseDiskFailsFollowsLater) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  follower_.reset();
  ExecuteInCopy("UPDATE log SET is_copy = 0");
  if (HasFatalFailure()) return;
  std::atomic<int> runs = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.has_run()) {
      response.mutable_run()->set_epoch(2);
      if (runs++ == 0) FailSyncs(/*sound=*/0, /*failing=*/1);
    }
    return true;
  });
  Follow(proxy.address());
  // It would not connect again if it took itself for promoted.
  EXPECT_TRUE(Await([&](const Follower::View&) { return runs >= 2; }));
  EXPECT_EQ(disk_.failing_syncs, 0);
  EXPECT_FALSE(follower_->view().is_promoted);
}

// The first coordinator ended after it wrote the run's row, but before the
// first versions.
TEST_F(FollowerFaultsTest, ARunWithoutVersionsIsLeftToTheElectedLeader) {
  const auto start = [&] {
    return Engine::Start({.state_dir = copy_dir(),
                          .config = TestRunConfig(),
                          .random = (uint64_t{5} << 32) + 7,
                          .now = SteadyWallClock()});
  };
  ASSERT_OK(start().status());
  ExecuteInCopy(
      "DELETE FROM commits; DELETE FROM round_sums; DELETE FROM history; "
      "DELETE FROM snapshots; DELETE FROM events");
  if (HasFatalFailure()) return;
  ASSERT_OK_AND_ASSIGN(follower_, OpenCandidate());
  EXPECT_EQ(follower_->view().run_id, "");
  EXPECT_FALSE(follower_->view().is_complete);
  follower_.reset();
  EXPECT_OK(start().status());
}

TEST_F(FollowerFaultsTest, ACandidateWithoutACopyCannotTakeOver) {
  ASSERT_OK_AND_ASSIGN(follower_, OpenCandidate());
  EXPECT_THAT(follower_->TakeOver(3), IsFailedPrecondition("not complete"));
}

}  // namespace
}  // namespace causeway
