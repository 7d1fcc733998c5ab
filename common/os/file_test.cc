// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// The directories and files that were synced.
std::vector<std::string>& Synced() {
  static auto& synced = *new std::vector<std::string>;
  return synced;
}

}  // namespace

// The program's calls of fsync(2) come here.
extern "C" int fsync(int descriptor) {
  char path[4096];
  const ssize_t size = readlink(
      absl::StrCat("/proc/self/fd/", descriptor).c_str(), path, sizeof(path));
  if (size > 0) Synced().emplace_back(path, static_cast<size_t>(size));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class FileTest : public testing::Test {
 protected:
  FileTest()
      : directory_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_OK(CreateDirectory(directory_));
  }

  std::string PathOf(absl::string_view name) const {
    return absl::StrCat(directory_, "/", name);
  }

  const std::string directory_;
};

TEST_F(FileTest, WritesPiecesInOrderAndLeavesNoTemporary) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"one ", "", "two"}));
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("one two"));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("a")));
}

TEST_F(FileTest, ReplacesAnExistingFile) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"a longer first content"}));
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"second"}));
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("second"));
}

TEST_F(FileTest, ReplacesTheTargetOfALink) {
  ASSERT_OK(CreateDirectory(PathOf("there")));
  ASSERT_OK(WriteFileAtomically(PathOf("there/a"), {"first"}));
  ASSERT_EQ(symlink("there/a", PathOf("link").c_str()), 0);
  ASSERT_OK(WriteFileAtomically(PathOf("link"), {"second"}));
  EXPECT_THAT(ReadFile(PathOf("there/a")), IsOkAndHolds("second"));
  struct stat link;
  ASSERT_EQ(lstat(PathOf("link").c_str(), &link), 0);
  EXPECT_TRUE(S_ISLNK(link.st_mode));
}

TEST_F(FileTest, RefusesToReplaceAnythingButFiles) {
  ASSERT_EQ(mkfifo(PathOf("pipe").c_str(), 0600), 0);
  ASSERT_EQ(symlink("pipe", PathOf("link").c_str()), 0);
  for (const char* const name : {"pipe", "link"}) {
    EXPECT_THAT(WriteFileAtomically(PathOf(name), {"text"}),
                IsInvalidArgument(PathOf(name), "is not a file"));
  }
  EXPECT_THAT(ListDirectory(directory_),
              IsOkAndHolds(ElementsAre("link", "pipe")));
}

TEST_F(FileTest, AnAbandonedWriterLeavesTheOldFile) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"old"}));
  {
    ASSERT_OK_AND_ASSIGN(AtomicFileWriter writer,
                         AtomicFileWriter::Create(PathOf("a")));
    ASSERT_OK(writer.Append("new"));
    EXPECT_EQ(writer.bytes_written(), 3);
  }
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("old"));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("a")));
}

TEST_F(FileTest, CommitsSeveralFilesAndSyncsTheDirectoryOnce) {
  std::vector<std::pair<WriteStage, std::string>> stages;
  const auto hook = [&](WriteStage stage, const std::string& path) {
    stages.emplace_back(stage, path);
    return absl::OkStatus();
  };
  std::vector<AtomicFileWriter> writers;
  for (const char* name : {"a", "b"}) {
    ASSERT_OK_AND_ASSIGN(AtomicFileWriter writer,
                         AtomicFileWriter::Create(PathOf(name), hook));
    ASSERT_OK(writer.Append(name));
    EXPECT_THAT(ReadFile(writer.temporary_path()), IsOkAndHolds(name));
    writers.push_back(std::move(writer));
  }
  ASSERT_OK(AtomicFileWriter::CommitAll(absl::MakeSpan(writers)));
  EXPECT_THAT(stages,
              ElementsAre(Pair(WriteStage::kWritten, PathOf("a")),
                          Pair(WriteStage::kSynced, PathOf("a")),
                          Pair(WriteStage::kWritten, PathOf("b")),
                          Pair(WriteStage::kSynced, PathOf("b")),
                          Pair(WriteStage::kRenamed, PathOf("a")),
                          Pair(WriteStage::kRenamed, PathOf("b")),
                          Pair(WriteStage::kDirectorySynced, PathOf("a")),
                          Pair(WriteStage::kDirectorySynced, PathOf("b"))));
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(ReadFile(PathOf(name)), IsOkAndHolds(name));
  }
}

TEST_F(FileTest, StagesComeInOrderAndAnErrorEndsTheWrite) {
  std::vector<WriteStage> stages;
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"old"},
                                [&](WriteStage stage, const std::string& path) {
                                  EXPECT_EQ(path, PathOf("a"));
                                  stages.push_back(stage);
                                  return absl::OkStatus();
                                }));
  EXPECT_THAT(stages,
              ElementsAre(WriteStage::kWritten, WriteStage::kSynced,
                          WriteStage::kRenamed, WriteStage::kDirectorySynced));

  const auto fail_at = [](WriteStage failing) {
    return [=](WriteStage stage, const std::string&) {
      return stage == failing ? ErrnoStatus(EIO, "sync", "disk")
                              : absl::OkStatus();
    };
  };
  EXPECT_THAT(
      WriteFileAtomically(PathOf("a"), {"new"}, fail_at(WriteStage::kSynced)),
      IsDataLoss());
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("old"));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("a")));

  EXPECT_THAT(
      WriteFileAtomically(PathOf("a"), {"new"}, fail_at(WriteStage::kRenamed)),
      IsDataLoss());
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("new"));
}

TEST_F(FileTest, ADyingProcessLeavesOnlyAMarkedTemporary) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"old"}));
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = WriteFileAtomically(
        PathOf("a"), {"new"}, [](WriteStage stage, const std::string&) {
          if (stage == WriteStage::kSynced) kill(getpid(), SIGKILL);
          return absl::OkStatus();
        });
    _exit(status.ok() ? 0 : 1);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(wait_status));
  EXPECT_THAT(ReadFile(PathOf("a")), IsOkAndHolds("old"));
  EXPECT_THAT(
      ListDirectory(directory_),
      IsOkAndHolds(ElementsAre(
          "a", HasSubstr(std::string(AtomicFileWriter::kTemporaryMarker)))));
}

TEST_F(FileTest, MapsFilesAndSurvivesTheirReplacement) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"mapped"}));
  ASSERT_OK_AND_ASSIGN(MappedFile file, MappedFile::Open(PathOf("a")));
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"other!"}));
  ASSERT_OK(RemoveFile(PathOf("a")));
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes(), "mapped");
  EXPECT_EQ(moved.path(), PathOf("a"));
}

TEST_F(FileTest, MapsAnEmptyFile) {
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {}));
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(PathOf("a")));
  EXPECT_EQ(file.bytes(), "");
}

TEST_F(FileTest, ErrorsNameThePathAndTheCause) {
  const auto missing = AllOf(HasSubstr("missing"), HasSubstr("No such file"));
  EXPECT_THAT(ReadFile(PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, missing));
  EXPECT_THAT(MappedFile::Open(PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, missing));
  EXPECT_OK(RemoveFileIfThere(PathOf("missing")));
  EXPECT_THAT(RemoveFile(PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, missing));
  EXPECT_THAT(ListDirectory(PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, missing));
  EXPECT_THAT(WriteFileAtomically(PathOf("missing/a"), {"x"}),
              StatusIs(absl::StatusCode::kNotFound, missing));
  EXPECT_THAT(ReadFile(directory_), IsInvalidArgument("Is a directory"));
  EXPECT_THAT(MappedFile::Open(directory_),
              IsInvalidArgument("not a regular file"));
}

TEST_F(FileTest, DiskFullIsResourceExhausted) {
  // /dev/full answers every write with ENOSPC.
  ASSERT_EQ(symlink("/dev/full",
                    absl::StrCat(PathOf("a"),
                                 AtomicFileWriter::kTemporaryMarker, getpid())
                        .c_str()),
            0);
  EXPECT_THAT(WriteFileAtomically(PathOf("a"), {"x"}),
              IsResourceExhausted("No space left on device"));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(IsEmpty()));
}

TEST_F(FileTest, ANewDirectorySurvivesALossOfPower) {
  Synced().clear();
  ASSERT_OK(CreateDirectory(PathOf("d")));
  EXPECT_THAT(Synced(),
              ElementsAre(EndsWith("/ANewDirectorySurvivesALossOfPower")));
}

TEST_F(FileTest, CreateDirectoryAcceptsADirectoryOnly) {
  EXPECT_OK(CreateDirectory(PathOf("d")));
  EXPECT_OK(CreateDirectory(PathOf("d")));
  ASSERT_OK(WriteFileAtomically(PathOf("a"), {"x"}));
  EXPECT_THAT(CreateDirectory(PathOf("a")),
              IsInvalidArgument("not a directory"));
  EXPECT_THAT(CreateDirectory(PathOf("no/d")), IsNotFound());
}

TEST_F(FileTest, ALockIsExclusiveAndNamesItsHolder) {
  // Nothing of an earlier holder's process id may remain.
  ASSERT_OK(WriteFileAtomically(PathOf("lock"), {"12345678901234567890\n"}));
  {
    ASSERT_OK_AND_ASSIGN(FileLock lock, FileLock::Acquire(PathOf("lock")));
    const FileLock moved = std::move(lock);
    EXPECT_THAT(
        FileLock::Acquire(PathOf("lock")),
        IsFailedPrecondition(absl::StrCat("by pid ", getpid(), " on ")));
  }
  EXPECT_OK(FileLock::Acquire(PathOf("lock")));
}

TEST_F(FileTest, ALockEndsWithItsProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<FileLock> lock = FileLock::Acquire(PathOf("lock"));
    const char answer = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(FileLock::Acquire(PathOf("lock")),
              IsFailedPrecondition(absl::StrCat("pid ", child)));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_OK(FileLock::Acquire(PathOf("lock")));
}

TEST_F(FileTest, AForkDoesNotKeepTheLockOfItsParent) {
  int ready[2];
  int alive[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(alive), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const absl::StatusOr<FileLock> lock = FileLock::Acquire(PathOf("lock"));
    close(alive[1]);
    const bool is_fork = fork() == 0;
    char answer = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    // The fork lives until the test closes its end.
    if (is_fork) _exit(static_cast<int>(read(alive[0], &answer, 1)));
    while (true) pause();
  }
  for (int i = 0; i < 2; ++i) {
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
  }
  kill(owner, SIGKILL);
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
  EXPECT_OK(FileLock::Acquire(PathOf("lock")));
  close(alive[1]);
}

TEST_F(FileTest, AForkDoesNotReleaseTheLockOfItsParent) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(PathOf("lock"));
  ASSERT_OK(lock);
  const pid_t child = fork();
  if (child == 0) {
    lock = absl::CancelledError("released");
    _exit(FileLock::Acquire(PathOf("lock")).ok() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(FileLock::Acquire(PathOf("lock")),
              IsFailedPrecondition(absl::StrCat("pid ", getpid())));
}

TEST(ErrnoStatusTest, CodesTellCausesApart) {
  const auto code = [](int error_number) {
    return ErrnoStatus(error_number, "open", "a").code();
  };
  EXPECT_EQ(code(ENOENT), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(EACCES), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(EROFS), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(EDQUOT), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(EMFILE), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(EEXIST), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(ENOTDIR), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EIO), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(EBADF), absl::StatusCode::kInternal);
  EXPECT_EQ(ErrnoStatus(EIO, "open", "a").message(),
            "cannot open a: Input/output error");
}

TEST(ParentDirectoryTest, SplitsAtTheLastSlash) {
  EXPECT_EQ(ParentDirectory("a"), ".");
  EXPECT_EQ(ParentDirectory("/a"), "/");
  EXPECT_EQ(ParentDirectory("/a/b"), "/a");
  EXPECT_EQ(ParentDirectory("a/b/c"), "a/b");
}

}  // namespace
}  // namespace causeway
