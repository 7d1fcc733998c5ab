// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// server/engine_snapshot_test.cc tests restarts from snapshots.
#include "server/fragment_heads.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class FragmentHeadsTest : public testing::Test {
 protected:
  // Restores version 0 of two fragments, of a run with rounds of 10 steps.
  void StartRun(const std::string& storage, WriteStageHook hook = nullptr,
                int total_steps = 1000) {
    ASSERT_OK(run_.Start(
        TestRunConfig(absl::StrCat("training { total_steps: ", total_steps,
                                   " } storage { ", storage, " }"))));
    run_.Stop();
    ASSERT_OK_AND_ASSIGN(
        state_,
        StateDirectory::Open(run_.state_dir(),
                             {.fragments = {.write_hook = std::move(hook)}}));
    ASSERT_OK_AND_ASSIGN(const RunRecord run, state_->log().LoadRun());
    run_id_ = run.run_id;
    ASSERT_OK_AND_ASSIGN(heads_,
                         FragmentHeads::Restore(*state_, run, 1, false));
    values_ = heads_->Newest(0)->contents().theta.size();
  }

  // Starts to make snapshots, which are noted after `before` was called.
  void StartSnapshots(std::function<void(const v1::FragmentHead&)> before =
                          [](const v1::FragmentHead&) {}) {
    heads_->StartSnapshots([this, before](SnapshotRecord snapshot) {
      before(snapshot.head);
      const std::string name =
          absl::StrCat(snapshot.head.fragment(), "@", snapshot.head.version());
      LogBatch batch;
      batch.snapshots.push_back(std::move(snapshot));
      const absl::Status written = state_->log().Apply(batch);
      absl::MutexLock lock(&mu_);
      noted_.push_back(name);
      return written;
    });
  }
  // Returns whether this number of snapshots is noted in time.
  bool AwaitNoted(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto noted = [&] { return noted_.size() >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&noted), absl::Minutes(1));
  }
  // Makes the last snapshots, and returns all: FRAGMENT@VERSION.
  std::vector<std::string> Finish() {
    heads_.reset();
    absl::MutexLock lock(&mu_);
    return noted_;
  }

  StoredFragment Version(uint32_t fragment, uint64_t version) const {
    const auto values = std::make_shared<std::vector<float>>(
        values_, static_cast<float>(version));
    FragmentContents contents{.run_id = run_id_, .theta = *values};
    contents.head.set_fragment(fragment);
    contents.head.set_version(version);
    return StoredFragment(values, std::move(contents));
  }

  // Returns an update with its version's number as its encoding.
  StoredUpdate Update(uint32_t fragment, uint64_t version) const {
    const auto bytes = std::make_shared<std::string>(absl::StrCat(version));
    UpdateContents contents{.run_id = run_id_, .encoding = *bytes};
    contents.head.set_fragment(fragment);
    contents.head.set_version(version);
    contents.object.set_encoded_bytes(bytes->size());
    contents.object.set_digest(Digest128(*bytes));
    return StoredUpdate(bytes, std::move(contents));
  }
  void Install(uint32_t fragment, uint64_t version, uint64_t record_bytes = 1) {
    heads_->Install(Version(fragment, version), Update(fragment, version),
                    {.bytes = record_bytes});
  }
  static CommitRecord CommitOf(const StoredUpdate& update) {
    const v1::FragmentHead& head = update.contents().head;
    return {.head = head, .update_file = FragmentStore::UpdatePath(head)};
  }
  // Returns the encoding of the update to a version of fragment 0.
  absl::StatusOr<std::string> OpenUpdate(uint64_t version) {
    ASSIGN_OR_RETURN(const auto update,
                     heads_->OpenUpdate(CommitOf(Update(0, version))));
    return std::string(update->contents().encoding);
  }

  // Installs a version, which is committed: only then does its snapshot count.
  void Commit(uint32_t fragment, uint64_t version,
              const RecordedMerges& merge) {
    StoredFragment after = Version(fragment, version);
    LogBatch batch;
    batch.commits.push_back({.head = after.contents().head});
    ASSERT_OK(state_->log().Apply(batch));
    heads_->Install(std::move(after), Update(fragment, version), merge);
  }

  EngineDriver run_;
  std::string run_id_;
  size_t values_ = 0;
  std::unique_ptr<StateDirectory> state_;
  absl::Mutex mu_;
  std::vector<std::string> noted_;
  std::unique_ptr<FragmentHeads> heads_;
};

TEST_F(FragmentHeadsTest, TheVersionBeforeIsKeptIfItIsRead) {
  StartRun("");
  EXPECT_EQ(heads_->size(), 2);
  auto reader = heads_->Newest(0);
  Install(0, 1);
  EXPECT_EQ(heads_->Find(0, 0), reader);
  EXPECT_EQ(heads_->Newest(0)->contents().theta[0], 1);
  EXPECT_EQ(heads_->Find(0, 1), heads_->Newest(0));
  reader.reset();
  Install(0, 2);
  EXPECT_EQ(heads_->Find(0, 0), nullptr);
  EXPECT_EQ(heads_->Find(0, 1), nullptr);
  EXPECT_EQ(heads_->Find(0, 2), heads_->Newest(0));
  EXPECT_EQ(heads_->Find(1, 0), heads_->Newest(1));
  EXPECT_EQ(heads_->Find(2, 0), nullptr);
}

TEST_F(FragmentHeadsTest, RecordsMakeASnapshotDue) {
  StartRun("snapshot_log_ratio: 1 versions_kept: 2");
  StartSnapshots();
  const uint64_t few = values_;
  const uint64_t many = 100 * values_;
  Commit(0, 1, {.bytes = few});
  Commit(0, 2, {.bytes = many});
  ASSERT_TRUE(AwaitNoted(1));
  Commit(0, 3, {.bytes = few});
  EXPECT_THAT(Finish(), ElementsAre("0@2", "0@3"));
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/fragments"),
              IsOkAndHolds(
                  UnorderedElementsAre("fragment-0000-v00000002.safetensors",
                                       "fragment-0000-v00000003.safetensors",
                                       "fragment-0001-v00000000.safetensors")));
}

TEST_F(FragmentHeadsTest, LongMergesMakeASnapshotDue) {
  StartRun("replay_seconds: 60 versions_kept: 2");
  StartSnapshots();
  Commit(1, 1, {.bytes = 1, .duration = absl::Seconds(25)});
  Commit(0, 1, {.bytes = 1, .duration = absl::Seconds(30)});
  Commit(1, 2, {.bytes = 1, .duration = absl::Seconds(10)});
  ASSERT_TRUE(AwaitNoted(1));
  Commit(0, 2, {.bytes = 1, .duration = absl::Seconds(25)});
  Commit(1, 3, {.bytes = 1, .duration = absl::Seconds(5)});
  EXPECT_THAT(Finish(), ElementsAre("1@2", "0@2", "1@3"));
}

TEST_F(FragmentHeadsTest, TheLastVersionIsASnapshotAtOnce) {
  StartRun("snapshot_log_ratio: 1000", nullptr, /*total_steps=*/30);
  StartSnapshots();
  Commit(1, 1, {.bytes = 1});
  for (const uint64_t version : {1, 2, 3}) Commit(0, version, {.bytes = 1});
  ASSERT_TRUE(AwaitNoted(1));
  EXPECT_THAT(Finish(), ElementsAre("0@3", "1@1"));
}

TEST_F(FragmentHeadsTest, SnapshotsAreNotedWithoutTheLock) {
  StartRun("snapshot_log_ratio: 0");
  StartSnapshots([&](const v1::FragmentHead& snapshot) {
    if (snapshot.version() == 1) Install(snapshot.fragment(), 2, 3);
  });
  Install(0, 1, 100);
  EXPECT_TRUE(AwaitNoted(2));
  EXPECT_THAT(Finish(), ElementsAre("0@1", "0@2"));
}

TEST_F(FragmentHeadsTest, AnUpdateIsThereBeforeItIsAFile) {
  StartRun("");
  Install(0, 1);
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/updates"),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(OpenUpdate(1), IsOkAndHolds("1"));
  EXPECT_THAT(OpenUpdate(2), IsNotFound());
}

TEST_F(FragmentHeadsTest, FewUpdatesWaitInMemory) {
  StartRun("");
  for (const uint64_t version : {1, 2, 3, 4}) Install(0, version);
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/updates"),
              IsOkAndHolds(ElementsAre("update-0000-v00000001.safetensors",
                                       "update-0000-v00000002.safetensors")));
  for (const uint64_t version : {1, 2, 3, 4}) {
    EXPECT_THAT(OpenUpdate(version), IsOkAndHolds(absl::StrCat(version)));
  }
}

TEST_F(FragmentHeadsTest, AFileIsOpenedOnceForAllConcurrentReaders) {
  StartRun("");
  const StoredUpdate update = Update(0, 1);
  ASSERT_OK(state_->fragments().WriteUpdate(update.contents()));
  ASSERT_OK_AND_ASSIGN(auto reader, heads_->OpenUpdate(CommitOf(update)));
  EXPECT_THAT(heads_->OpenUpdate(CommitOf(update)), IsOkAndHolds(reader));
  EXPECT_THAT(heads_->OpenUpdate(CommitOf(Update(0, 2))), IsNotFound());

  // The version is made again while a reader still has the first one.
  UpdateContents again = Update(0, 1).contents();
  again.encoding = "again";
  again.head.set_digest("another");
  again.object.set_encoded_bytes(again.encoding.size());
  again.object.set_digest(Digest128(again.encoding));
  ASSERT_OK(state_->fragments().WriteUpdate(again));
  ASSERT_OK_AND_ASSIGN(
      auto other, heads_->OpenUpdate(CommitOf(StoredUpdate(nullptr, again))));
  EXPECT_EQ(other->contents().encoding, "again");
  EXPECT_EQ(reader->contents().encoding, "1");

  // A file is closed with its last reader.
  const std::weak_ptr<const StoredUpdate> open = other;
  other.reset();
  EXPECT_TRUE(open.expired());
}

// With its snapshot, a version's records may go, and with them the means to
// make its update again.
TEST_F(FragmentHeadsTest, UpdatesAreFilesBeforeASnapshotIsNoted) {
  StartRun("snapshot_log_ratio: 0");
  std::vector<std::string> files;
  StartSnapshots([&](const v1::FragmentHead&) {
    files = ListDirectory(run_.state_dir() + "/updates").value();
  });
  Commit(0, 1, {.bytes = 100});
  ASSERT_TRUE(AwaitNoted(1));
  EXPECT_THAT(files, ElementsAre("update-0000-v00000001.safetensors"));
  EXPECT_THAT(OpenUpdate(1), IsOkAndHolds("1"));
}

TEST_F(FragmentHeadsTest, AnUpdateIsWrittenByOneThreadAndBeforeItsSnapshot) {
  absl::Notification first_begun, last_begun, go_on;
  std::atomic<int> writes_of_first = 0;
  StartRun("snapshot_log_ratio: 0 versions_kept: 1",
           [&](WriteStage stage, const std::string& file) {
             if (stage != WriteStage::kWritten) return absl::OkStatus();
             if (absl::StrContains(file, "update-0000-v00000001")) {
               if (++writes_of_first > 1) return absl::OkStatus();
               first_begun.Notify();
               go_on.WaitForNotification();
             } else if (absl::StrContains(file, "update-0000-v00000003")) {
               last_begun.Notify();
             }
             return absl::OkStatus();
           });
  // The third version is one too many, so that the first one is written.
  std::thread installer([&] {
    for (const uint64_t version : {1, 2, 3}) {
      Commit(0, version, {.bytes = 100});
    }
  });
  first_begun.WaitForNotification();
  std::vector<std::string> files;
  StartSnapshots([&](const v1::FragmentHead&) {
    files = ListDirectory(run_.state_dir() + "/updates").value();
  });
  last_begun.WaitForNotification();
  go_on.Notify();
  installer.join();
  ASSERT_TRUE(AwaitNoted(1));
  EXPECT_EQ(writes_of_first, 1);
  EXPECT_THAT(files, ElementsAre("update-0000-v00000001.safetensors",
                                 "update-0000-v00000002.safetensors",
                                 "update-0000-v00000003.safetensors"));
  for (const uint64_t version : {1, 2, 3}) {
    EXPECT_THAT(OpenUpdate(version), IsOkAndHolds(absl::StrCat(version)));
  }
  Finish();
}

// The writing thread has begun with the oldest update.
TEST_F(FragmentHeadsTest, AnUpdateTooManyIsNotTheOneThatIsBeingWritten) {
  absl::Notification first_begun, go_on;
  std::atomic<int> writes_of_first = 0;
  StartRun("", [&](WriteStage stage, const std::string& file) {
    if (stage == WriteStage::kWritten &&
        absl::StrContains(file, "update-0000-v00000001") &&
        ++writes_of_first == 1) {
      first_begun.Notify();
      go_on.WaitForNotification();
    }
    return absl::OkStatus();
  });
  StartSnapshots();
  Install(0, 1);
  first_begun.WaitForNotification();
  Install(0, 2);
  Install(0, 3);
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/updates"),
              IsOkAndHolds(Contains("update-0000-v00000002.safetensors")));
  go_on.Notify();
  Finish();
  EXPECT_EQ(writes_of_first, 1);
}

TEST_F(FragmentHeadsTest, AnUpdateGoesWhenItIsNoLongerKept) {
  StartRun("update_history: 2");
  const std::string folder = run_.state_dir() + "/updates";
  ASSERT_OK(state_->fragments().WriteUpdate(Update(0, 1).contents()));
  for (const uint64_t version : {1, 2, 3}) Install(0, version);
  EXPECT_THAT(ListDirectory(folder), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(OpenUpdate(1), IsNotFound());
  EXPECT_THAT(OpenUpdate(2), IsOkAndHolds("2"));
  StartSnapshots();
  Finish();
  EXPECT_THAT(ListDirectory(folder),
              IsOkAndHolds(ElementsAre("update-0000-v00000002.safetensors",
                                       "update-0000-v00000003.safetensors")));
}

}  // namespace
}  // namespace causeway
