// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/state_directory.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checksum.h"
#include "common/os/machine.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kRunId[] = "run-1";

std::vector<float> ThetaOf(uint64_t version) {
  return {static_cast<float>(version), -1.0f, 0.5f};
}

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectoryTest()
      : path_(absl::StrCat(
            testing::TempDir(), "/",
            absl::StrReplaceAll(
                testing::UnitTest::GetInstance()->current_test_info()->name(),
                {{"/", "-"}}))) {}

  absl::StatusOr<std::unique_ptr<StateDirectory>> Open(
      WriteStageHook hook = nullptr) const {
    return StateDirectory::Open(
        path_, {.create = true, .fragments = {.write_hook = std::move(hook)}});
  }

  // Commits a version of fragment 0, and its snapshot, as a coordinator does:
  // first files, then the log.
  static absl::Status Commit(StateDirectory& state, uint64_t version) {
    const std::vector<float> theta = ThetaOf(version);
    FragmentContents fragment{.run_id = kRunId, .theta = theta};
    fragment.head.set_version(version);
    fragment.head.set_digest(Digest128(fragment.theta));
    CommitRecord commit{.head = fragment.head,
                        .committed_at = absl::UnixEpoch()};
    LogBatch batch;
    if (version == 0) {
      RunRecord run{.run_id = kRunId, .created_at = absl::UnixEpoch()};
      run.plan.add_fragments();
      RETURN_IF_ERROR(state.log().CreateRun(run));
      batch.commits = {commit};
    } else {
      UpdateContents update{
          .run_id = kRunId, .head = fragment.head, .encoding = "update"};
      RETURN_IF_ERROR(state.fragments().WriteUpdate(update));
      commit.update_file = FragmentStore::UpdatePath(update.head);
      LogBatch merge{.commits = {commit}};
      RETURN_IF_ERROR(state.log().Apply(merge));
    }
    SnapshotRecord snapshot{.head = fragment.head};
    ASSIGN_OR_RETURN(snapshot.file, state.fragments().WriteFragment(fragment));
    batch.snapshots = {snapshot};
    return state.log().Apply(batch);
  }

  static absl::StatusOr<StoredFragment> ReadNewest(StateDirectory& state) {
    ASSIGN_OR_RETURN(const std::vector<SnapshotRecord> newest,
                     state.log().Snapshots(0, 1));
    return state.fragments().OpenFragment(newest.at(0).file, kRunId,
                                          newest.at(0).head);
  }

  // Returns the newest version, and checks its values.
  static uint64_t NewestVersion(StateDirectory& state) {
    const absl::StatusOr<StoredFragment> stored = ReadNewest(state);
    EXPECT_OK(stored);
    if (!stored.ok()) return UINT64_MAX;
    const uint64_t version = stored->contents().head.version();
    EXPECT_THAT(stored->contents().theta,
                testing::ElementsAreArray(ThetaOf(version)));
    return version;
  }

  const std::string path_;
};

TEST_F(StateDirectoryTest, ARunGoesOnAfterReopening) {
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(Commit(*state, 0));
    ASSERT_OK(Commit(*state, 1));
  }
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  EXPECT_EQ(NewestVersion(*state), 1);
  EXPECT_OK(Commit(*state, 2));
  EXPECT_EQ(NewestVersion(*state), 2);
}

TEST_F(StateDirectoryTest, OneCoordinatorAtATime) {
  ASSERT_OK_AND_ASSIGN(auto state, Open());
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable,
                               testing::StartsWith(absl::StrCat(
                                   "state directory ", path_,
                                   " is in use by another coordinator (pid ",
                                   getpid(), " on "))));
  state.reset();
  EXPECT_OK(Open());
}

TEST_F(StateDirectoryTest, ToolsReadBesideTheCoordinator) {
  EXPECT_THAT(StateDirectory::OpenReadOnly(path_), IsNotFound(path_));
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(Commit(*state, 0));
  ASSERT_OK_AND_ASSIGN(const auto tool, StateDirectory::OpenReadOnly(path_));
  for (uint64_t version = 1; version < 5; ++version) {
    ASSERT_OK(Commit(*state, version));
    ASSERT_OK(state->RemoveUnreferenced(kRunId, 1, 1));
    EXPECT_EQ(NewestVersion(*tool), version);
  }
}

// Runs `check` in a process that may write only what file modes allow.
bool SucceedsWithoutCapabilities(const std::function<absl::Status()>& check) {
  const pid_t child = fork();
  if (child == 0) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3};
    __user_cap_data_struct none[2] = {};
    syscall(SYS_capset, &header, none);
    const absl::Status status = check();
    if (!status.ok()) LOG(ERROR) << status;
    _exit(status.ok() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(StateDirectoryTest, ToolsReadADirectoryThatTheyMayNotWrite) {
  const std::string copy = path_ + "-copy";
  const auto read = [&]() -> absl::Status {
    // Make sure that the process may not write there.
    if (WriteFileAtomically(copy + "/file", {"x"}).ok()) {
      return absl::InternalError("the directory can be written");
    }
    ASSIGN_OR_RETURN(const auto tool, StateDirectory::OpenReadOnly(copy));
    ASSIGN_OR_RETURN(const StoredFragment newest, ReadNewest(*tool));
    if (newest.contents().head.version() == 1) return absl::OkStatus();
    return absl::InternalError("not the newest version");
  };
  const auto copy_and_read = [&](bool with_index) {
    namespace fs = std::filesystem;
    fs::remove_all(copy);
    fs::copy(path_, copy, fs::copy_options::recursive);
    if (!with_index) fs::remove(copy + "/run.sqlite3-shm");
    fs::permissions(copy, fs::perms(0555));
    const bool read_all = SucceedsWithoutCapabilities(read);
    fs::permissions(copy, fs::perms(0755));
    return read_all;
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(Commit(*state, 0));
    ASSERT_OK(Commit(*state, 1));
    EXPECT_TRUE(copy_and_read(/*with_index=*/true));
    EXPECT_TRUE(copy_and_read(/*with_index=*/false));
    // While a coordinator has the lock, its files may change under the reader,
    // so they are read only with its index.
    const auto lock = FileLock::Acquire(copy + "/lock");
    std::filesystem::permissions(copy, std::filesystem::perms(0555));
    EXPECT_FALSE(SucceedsWithoutCapabilities(read));
    std::filesystem::permissions(copy, std::filesystem::perms(0755));
  }
  EXPECT_TRUE(copy_and_read(/*with_index=*/false));
}

TEST_F(StateDirectoryTest, NoticesThatALogOrLockIsNotInPlace) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(Commit(*state, 0));
  ASSERT_OK(state->CheckInPlace());
  uint64_t version = 0;
  for (const std::string name : {"run.sqlite3", "run.sqlite3-wal", "lock"}) {
    const std::string file = absl::StrCat(path_, "/", name);
    std::filesystem::rename(file, file + ".away");
    EXPECT_THAT(state->CheckInPlace(),
                IsFailedPrecondition(file + " was removed"));
    ASSERT_OK(WriteFileAtomically(file, {"other"}));
    EXPECT_THAT(state->CheckInPlace(),
                IsFailedPrecondition(file + " was replaced"));
    if (name != "lock") {
      EXPECT_THAT(Commit(*state, version + 1), IsFailedPrecondition());
    }
    std::filesystem::rename(file + ".away", file);
    EXPECT_OK(state->CheckInPlace());
    EXPECT_OK(Commit(*state, ++version));
  }
}

TEST_F(StateDirectoryTest, ARemovedLogIsRescued) {
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(Commit(*state, 0));
    ASSERT_OK(Commit(*state, 1));
    EXPECT_THAT(state->RescueLog(), IsOkAndHolds(false));
    ASSERT_OK(RemoveFile(path_ + "/run.sqlite3"));
    EXPECT_THAT(state->RescueLog(), IsOkAndHolds(true));
  }
  EXPECT_THAT(Open(), IsFailedPrecondition(absl::StrCat(
                          "rename ", path_, "/run.sqlite3.rescued to")));
  // The write-ahead log, which is still there, changes nothing.
  EXPECT_TRUE(std::filesystem::exists(path_ + "/run.sqlite3-wal"));
  std::filesystem::rename(path_ + "/run.sqlite3.rescued",
                          path_ + "/run.sqlite3");
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  EXPECT_EQ(NewestVersion(*state), 1);
  EXPECT_OK(Commit(*state, 2));
}

TEST_F(StateDirectoryTest, TheLogIsCopiedWhileItIsLocked) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(Commit(*state, 0));
  absl::StatusOr<std::string> copy;
  state->log().Publish([&](std::shared_ptr<const v1::LogChange> change) {
    if (change->commits_size() > 0) copy = state->CopyLogFor("f");
  });
  ASSERT_OK(Commit(*state, 1));
  ASSERT_OK(copy.status());
  {
    ASSERT_OK_AND_ASSIGN(const auto log, CommitLog::Open(*copy));
    ASSERT_OK_AND_ASSIGN(const std::vector<CommitRecord> heads, log->Heads());
    EXPECT_EQ(heads.at(0).head.version(), 1);
  }
}

TEST_F(StateDirectoryTest, ACopyOfTheLogLeavesHalfOfTheDisk) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(Commit(*state, 0));
  // A hole at the end takes no space, but counts.
  const std::string log = path_ + "/run.sqlite3";
  const uintmax_t bytes = std::filesystem::file_size(log);
  ASSERT_OK_AND_ASSIGN(const DiskSpace disk, FindDiskSpace(path_));
  std::filesystem::resize_file(log, bytes + disk.free);
  EXPECT_THAT(state->CopyLogFor("f"), IsResourceExhausted("make room"));
  EXPECT_FALSE(std::filesystem::exists(log + ".for-f"));
  std::filesystem::resize_file(log, bytes);
  EXPECT_OK(state->CopyLogFor("f"));
}

TEST_F(StateDirectoryTest, ACopyOfTheLogThatACrashLeftIsRemoved) {
  std::string copy;
  std::string received;
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(Commit(*state, 0));
    ASSERT_OK_AND_ASSIGN(copy, state->CopyLogFor("f"));
    received = state->ReceivedLog() + ".tmp-7";
    ASSERT_OK(WriteFileAtomically(received, {"a part"}));
  }
  ASSERT_TRUE(std::filesystem::exists(copy));
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  EXPECT_FALSE(std::filesystem::exists(copy));
  EXPECT_FALSE(std::filesystem::exists(received));
  EXPECT_EQ(NewestVersion(*state), 0);
}

TEST_F(StateDirectoryTest, AnIncompleteCopyIsBegunAgainBesideOtherFiles) {
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(Commit(*state, 0));
    ASSERT_OK(state->BeginCopy());
  }
  ASSERT_OK(CreateDirectory(path_ + "/tls"));
  ASSERT_OK(WriteFileAtomically(path_ + "/port", {"7070"}));
  ASSERT_OK(WriteFileAtomically(path_ + "/incomplete-copy.tmp-7", {"a part"}));
  EXPECT_THAT(Open(), IsFailedPrecondition("is not complete"));
  ASSERT_OK(StateDirectory::RemoveIncompleteCopy(path_));
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  EXPECT_THAT(state->log().LoadRun(), IsNotFound());
  EXPECT_THAT(ListDirectory(path_ + "/fragments"), IsOkAndHolds(IsEmpty()));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/port"));
  EXPECT_OK(Commit(*state, 0));
}

TEST_F(StateDirectoryTest, LeavesForeignDirectoriesAlone) {
  EXPECT_THAT(StateDirectory::Open(path_, {.create = false}),
              IsNotFound(path_));
  ASSERT_OK(CreateDirectory(path_));
  ASSERT_OK(WriteFileAtomically(path_ + "/thesis.tex", {"years of work"}));
  EXPECT_THAT(Open(), IsFailedPrecondition("\"thesis.tex\""));
  EXPECT_THAT(StateDirectory::OpenReadOnly(path_),
              IsNotFound("not a state directory"));
  EXPECT_THAT(ListDirectory(path_), IsOkAndHolds(ElementsAre("thesis.tex")));
}

TEST_F(StateDirectoryTest, KeepsTheNewestVersionsAndUpdates) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  for (uint64_t version = 0; version <= 6; ++version) {
    ASSERT_OK(Commit(*state, version));
  }
  ASSERT_OK(state->RemoveUnreferenced(kRunId, 2, 3).status());
  EXPECT_THAT(ListDirectory(path_ + "/fragments"),
              IsOkAndHolds(ElementsAre("fragment-0000-v00000005.safetensors",
                                       "fragment-0000-v00000006.safetensors")));
  EXPECT_THAT(ListDirectory(path_ + "/updates"),
              IsOkAndHolds(ElementsAre("update-0000-v00000004.safetensors",
                                       "update-0000-v00000005.safetensors",
                                       "update-0000-v00000006.safetensors")));
  EXPECT_THAT(state->RemoveUnreferenced(kRunId, 2, 3), IsOkAndHolds(IsEmpty()));
  EXPECT_EQ(NewestVersion(*state), 6);
}

// The counts of versions and of updates are independent.
TEST_F(StateDirectoryTest, ACountOfOneKeepsTheHead) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  for (uint64_t version = 0; version <= 4; ++version) {
    ASSERT_OK(Commit(*state, version));
  }
  ASSERT_OK_AND_ASSIGN(const StoredFragment open, ReadNewest(*state));
  ASSERT_OK(state->RemoveUnreferenced(kRunId, 3, 1).status());
  EXPECT_THAT(ListDirectory(path_ + "/fragments"),
              IsOkAndHolds(ElementsAre("fragment-0000-v00000002.safetensors",
                                       "fragment-0000-v00000003.safetensors",
                                       "fragment-0000-v00000004.safetensors")));
  EXPECT_THAT(ListDirectory(path_ + "/updates"),
              IsOkAndHolds(ElementsAre("update-0000-v00000004.safetensors")));
  ASSERT_OK(state->RemoveUnreferenced(kRunId, 1, 1).status());
  EXPECT_EQ(NewestVersion(*state), 4);
  EXPECT_THAT(ListDirectory(path_ + "/fragments"), IsOkAndHolds(SizeIs(1)));
  EXPECT_THAT(ListDirectory(path_ + "/updates"), IsOkAndHolds(SizeIs(1)));
  // A reader of a version can continue while its file is removed.
  ASSERT_OK(Commit(*state, 5));
  ASSERT_OK(state->RemoveUnreferenced(kRunId, 1, 1).status());
  EXPECT_EQ(NewestVersion(*state), 5);
  EXPECT_THAT(open.contents().theta, testing::ElementsAreArray(ThetaOf(4)));
}

TEST_F(StateDirectoryTest, ATornHeadIsDataLoss) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(Commit(*state, 0));
  const std::string file =
      path_ + "/fragments/fragment-0000-v00000000.safetensors";
  ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(file));
  ASSERT_OK(WriteFileAtomically(
      file, {absl::string_view(content).substr(0, content.size() - 4)}));
  EXPECT_THAT(ReadNewest(*state), IsDataLoss(file));
}

// Returns the checksum of every file below a directory.
std::map<std::string, uint32_t> Snapshot(const std::string& directory) {
  std::map<std::string, uint32_t> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    // The lock file names the process that holds it.
    if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
    files[entry.path()] = Crc32c(ReadFile(entry.path()).value());
  }
  return files;
}

class PartialRestoreTest : public StateDirectoryTest {
 protected:
  // Makes a run of three versions, with the log as of version `log_version`.
  void MakeRun(uint64_t log_version) {
    for (uint64_t version = 0; version <= 3; ++version) {
      {
        ASSERT_OK_AND_ASSIGN(const auto state, Open());
        ASSERT_OK(Commit(*state, version));
      }
      if (version == log_version) older_log_ = *ReadFile(Log());
    }
    newest_log_ = *ReadFile(Log());
    ASSERT_OK(WriteFileAtomically(Log(), {older_log_}));
  }
  std::string Log() const { return path_ + "/run.sqlite3"; }

  // Expects that opening fails with this message and changes nothing, and that
  // the run continues with the newest log.
  void ExpectRefused(const std::string& message) {
    const auto before = Snapshot(path_);
    EXPECT_THAT(Open(), IsFailedPrecondition(message));
    EXPECT_EQ(Snapshot(path_), before);
    ASSERT_OK(WriteFileAtomically(Log(), {newest_log_}));
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    EXPECT_EQ(NewestVersion(*state), 3);
  }

 private:
  std::string older_log_;
  std::string newest_log_;
};

TEST_F(PartialRestoreTest, FilesWithoutALogAreNotANewRun) {
  MakeRun(3);
  ASSERT_OK(RemoveFile(Log()));
  ExpectRefused("(fragments/fragment-0000-v00000000.safetensors and 6 more)");
}

TEST_F(PartialRestoreTest, FilesWithAnEmptyLogAreNotANewRun) {
  MakeRun(3);
  ASSERT_OK(WriteFileAtomically(Log(), {""}));
  ExpectRefused("run.sqlite3, which says what they are");
}

TEST_F(PartialRestoreTest, FilesWithALogThatHasNoRunAreNotANewRun) {
  MakeRun(3);
  ASSERT_OK(RemoveFile(Log()));
  ASSERT_OK(CommitLog::Open(Log()).status());
  ExpectRefused("is missing or has no run");
}

TEST_F(PartialRestoreTest, AWriteAheadLogWithoutItsDatabaseIsKept) {
  ASSERT_OK(CreateDirectory(path_));
  ASSERT_OK(WriteFileAtomically(Log() + "-wal", {"commits"}));
  EXPECT_THAT(Open(), IsFailedPrecondition("(run.sqlite3-wal)"));
  EXPECT_THAT(ReadFile(Log() + "-wal"), IsOkAndHolds("commits"));
}

TEST_F(PartialRestoreTest, FilesThatAreNewerThanTheLogAreKept) {
  MakeRun(1);
  ExpectRefused("knows versions up to 1 only of fragment 0");
}

// A coordinator makes a snapshot of a committed version only.
TEST_F(PartialRestoreTest, OneSnapshotThatIsNewerThanTheLogIsKept) {
  MakeRun(2);
  ExpectRefused("fragments/fragment-0000-v00000003.safetensors");
}

// A crash leaves files of the next version, and no others.
TEST_F(PartialRestoreTest, FilesOfTheVersionAfterTheNextAreKept) {
  MakeRun(1);
  for (const char* version : {"2", "3"}) {
    ASSERT_OK(RemoveFile(absl::StrCat(
        path_, "/fragments/fragment-0000-v0000000", version, ".safetensors")));
  }
  const std::string update = "updates/update-0000-v00000003.safetensors";
  EXPECT_THAT(Open(), IsFailedPrecondition(update));
  ASSERT_OK(RemoveFile(absl::StrCat(path_, "/", update)));
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  EXPECT_EQ(NewestVersion(*state), 1);
}

// A file in a run's folder that is not one of the run's files stays.
TEST_F(StateDirectoryTest, RemovesOnlyFilesOfItsOwnRun) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  for (uint64_t version = 0; version <= 2; ++version) {
    ASSERT_OK(Commit(*state, version));
  }
  const std::vector<float> theta = ThetaOf(9);
  FragmentContents other{.run_id = "run-2", .theta = theta};
  ASSERT_OK(state->fragments().WriteFragment(other));
  ASSERT_OK(WriteFileAtomically(path_ + "/updates/notes.txt", {"mine"}));
  EXPECT_THAT(
      state->RemoveUnreferenced(kRunId, 1, 1),
      IsOkAndHolds(ElementsAre("fragments/fragment-0000-v00000001.safetensors",
                               "updates/update-0000-v00000001.safetensors")));
  EXPECT_THAT(ListDirectory(path_ + "/fragments"),
              IsOkAndHolds(ElementsAre("fragment-0000-v00000000.safetensors",
                                       "fragment-0000-v00000002.safetensors")));
  EXPECT_THAT(ReadFile(path_ + "/updates/notes.txt"), IsOkAndHolds("mine"));
}

// A child commits version 1, with a snapshot, and is killed at one stage of
// writing one of the files. In every case a restart finds the snapshot of
// version 0, and the run continues.
class CrashTest
    : public StateDirectoryTest,
      public testing::WithParamInterface<std::tuple<const char*, WriteStage>> {
};

TEST_P(CrashTest, KeepsTheCommittedVersion) {
  const char* const file_kind = std::get<0>(GetParam());
  const WriteStage crash_stage = std::get<1>(GetParam());
  {
    ASSERT_OK_AND_ASSIGN(const auto state,
                         StateDirectory::Open(path_, {.create = true}));
    ASSERT_OK(Commit(*state, 0));
  }
  const pid_t child = fork();
  if (child == 0) {
    const WriteStageHook die = [&](WriteStage stage, const std::string& file) {
      if (stage == crash_stage && absl::StrContains(file, file_kind)) {
        kill(getpid(), SIGKILL);
      }
      return absl::OkStatus();
    };
    const auto state =
        StateDirectory::Open(path_, {.fragments = {.write_hook = die}});
    if (state.ok()) Commit(**state, 1).IgnoreError();
    _exit(0);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(wait_status));

  ASSERT_OK_AND_ASSIGN(const auto state, StateDirectory::Open(path_, {}));
  EXPECT_EQ(NewestVersion(*state), 0);
  // No record supersedes the files that the crash has left.
  EXPECT_THAT(state->RemoveUnreferenced(kRunId, 2, 2), IsOkAndHolds(IsEmpty()));
  ASSERT_OK_AND_ASSIGN(const std::vector<CommitRecord> heads,
                       state->log().Heads());
  const uint64_t next = heads.at(0).head.version() + 1;
  EXPECT_EQ(next, absl::string_view(file_kind) == "fragment-" ? 2 : 1);
  EXPECT_OK(Commit(*state, next));
  EXPECT_EQ(NewestVersion(*state), next);
  EXPECT_OK(state->RemoveUnreferenced(kRunId, 1, 1));
  EXPECT_THAT(ListDirectory(path_ + "/fragments"), IsOkAndHolds(SizeIs(1)));
  EXPECT_THAT(ListDirectory(path_ + "/updates"), IsOkAndHolds(SizeIs(1)));
}

INSTANTIATE_TEST_SUITE_P(
    AllPoints, CrashTest,
    testing::Values(std::make_tuple("fragment-", WriteStage::kWritten),
                    std::make_tuple("fragment-", WriteStage::kSynced),
                    std::make_tuple("fragment-", WriteStage::kRenamed),
                    std::make_tuple("fragment-", WriteStage::kDirectorySynced),
                    std::make_tuple("update-", WriteStage::kWritten),
                    std::make_tuple("update-", WriteStage::kRenamed)));

// A coordinator needs the records since the oldest snapshot that it keeps.
TEST_F(StateDirectoryTest, RecordsStayUntilNoSnapshotNeedsThem) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  for (uint64_t version = 0; version <= 6; ++version) {
    ASSERT_OK(Commit(*state, version));
    if (version == 0) continue;
    v1::RecordedMerge merge;
    merge.mutable_head()->set_version(version);
    v1::RunConfig config;
    config.mutable_storage()->set_record_contributions(version <= 2);
    ASSERT_OK(state->merges().Write(merge, config, {}));
  }
  ASSERT_OK(state->RemoveOldSnapshot(0, 3));
  // Only the fourth of seven snapshots is removed: older ones should be gone
  // already.
  EXPECT_THAT(ListDirectory(path_ + "/fragments"), IsOkAndHolds(SizeIs(6)));
  EXPECT_THAT(ListDirectory(path_ + "/merges"),
              IsOkAndHolds(ElementsAre("merge-0000-v00000001.safetensors",
                                       "merge-0000-v00000002.safetensors",
                                       "merge-0000-v00000005.safetensors",
                                       "merge-0000-v00000006.safetensors")));
  ASSERT_OK(state->RemoveUnreferenced(kRunId, 1, 1));
  EXPECT_THAT(ListDirectory(path_ + "/merges"), IsOkAndHolds(SizeIs(2)))
      << "those that are kept for good";
}

TEST_F(StateDirectoryTest, AMountedFileSystemIsUsable) {
  ASSERT_OK(CreateDirectory(path_));
  ASSERT_OK(CreateDirectory(path_ + "/lost+found"));
  ASSERT_OK(Open().status());
  // Once there is a log, other files may lie beside it.
  ASSERT_OK(WriteFileAtomically(path_ + "/notes.txt", {"of a person"}));
  EXPECT_OK(Open().status());
}

TEST_F(StateDirectoryTest, TemporaryFilesAreRemovedAtTheStart) {
  {
    ASSERT_OK_AND_ASSIGN(const auto state, Open());
    ASSERT_OK(state->log().CreateRun({.run_id = kRunId}));
  }
  const std::string file =
      absl::StrCat(path_, "/updates/update-0000-v00000001.safetensors",
                   AtomicFileWriter::kTemporaryMarker, "abc");
  ASSERT_OK(WriteFileAtomically(file, {"a part"}));
  ASSERT_OK(Open().status());
  EXPECT_THAT(ListDirectory(path_ + "/updates"), IsOkAndHolds(IsEmpty()));
}

TEST_F(StateDirectoryTest, RemovingFromQuarantineTwiceIsOk) {
  ASSERT_OK_AND_ASSIGN(const auto state, Open());
  ASSERT_OK(state->WriteQuarantined(3, "bytes"));
  EXPECT_THAT(state->ReadQuarantined(3), IsOkAndHolds("bytes"));
  ASSERT_OK(state->RemoveQuarantined(3));
  EXPECT_THAT(state->ReadQuarantined(3), IsNotFound());
  EXPECT_OK(state->RemoveQuarantined(3));
}

}  // namespace
}  // namespace causeway
