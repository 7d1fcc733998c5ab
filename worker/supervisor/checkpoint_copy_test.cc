// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/checkpoint_copy.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Two directories represent the memory of two hosts.
class CheckpointCopyTest : public testing::Test {
 protected:
  CheckpointCopyTest()
      : directory_(*TemporaryDirectory::Make("checkpoint_copy_test")) {
    for (const char* host : {"a", "b"}) {
      EXPECT_OK(CreateDirectory(Directory(host)));
    }
    StartKeeper("127.0.0.1:0");
  }

  std::string Directory(const std::string& host) const {
    return absl::StrCat(directory_.path(), "/", host);
  }
  std::string File(const std::string& host) const {
    return absl::StrCat(Directory(host), "/island.safetensors");
  }
  CheckpointCopyOptions Options(const std::string& host,
                                const std::string& address) const {
    return {.address = address,
            .secret = secret_,
            .directory = Directory(host),
            .now = SteadyWallClock()};
  }
  CheckpointCopyOptions OwnOptions() const {
    return Options("a", keeper_->address());
  }
  void StartKeeper(const std::string& address) {
    ASSERT_OK_AND_ASSIGN(keeper_,
                         CheckpointKeeper::Start(Options("b", address)));
  }
  void Save(const std::string& contents) const {
    ASSERT_OK(WriteFileAtomically(File("a"), {contents}));
  }
  std::optional<std::string> Contents(const std::string& host) const {
    const absl::StatusOr<std::string> contents = ReadFile(File(host));
    if (!contents.ok()) return std::nullopt;
    return *contents;
  }
  // Waits without a time limit.
  void AwaitCopy(const std::optional<std::string>& contents) const {
    while (Contents("b") != contents) absl::SleepFor(absl::Milliseconds(1));
  }

  const TemporaryDirectory directory_;
  std::string secret_ = "a secret";
  std::unique_ptr<CheckpointKeeper> keeper_;
};

TEST_F(CheckpointCopyTest, AnotherHostHasTheNewestCheckpoint) {
  const std::string large(3 << 20, 'x');
  const CheckpointMirror mirror(OwnOptions());
  for (const std::string& contents : {std::string("one"), large}) {
    Save(contents);
    AwaitCopy(contents);
  }
  // The host is lost and replaced.
  ASSERT_OK(RemoveFile(File("a")));
  ASSERT_OK(FetchCheckpoint(OwnOptions()));
  EXPECT_EQ(Contents("a"), large);
}

TEST_F(CheckpointCopyTest, OwnCheckpointsAreNewer) {
  ASSERT_OK(WriteFileAtomically(File("b"), {"old"}));
  Save("new");
  ASSERT_OK(FetchCheckpoint(OwnOptions()));
  EXPECT_EQ(Contents("a"), "new");
}

TEST_F(CheckpointCopyTest, WithoutACopyNothingIsFetched) {
  ASSERT_OK(FetchCheckpoint(OwnOptions()));
  EXPECT_EQ(Contents("a"), std::nullopt);
}

TEST_F(CheckpointCopyTest, ARemovedCheckpointHasNoCopy) {
  {
    const CheckpointMirror mirror(OwnOptions());
    Save("one");
    AwaitCopy("one");
    ASSERT_OK(RemoveFile(File("a")));
  }
  AwaitCopy(std::nullopt);
  // A mirror that has seen none removes none.
  ASSERT_OK(WriteFileAtomically(File("b"), {"of a lost host"}));
  { const CheckpointMirror mirror(OwnOptions()); }
  EXPECT_EQ(Contents("b"), "of a lost host");
}

TEST_F(CheckpointCopyTest, ACheckpointThatIsRemovedOnItsWayHasNoCopy) {
  ASSERT_OK(WriteFileAtomically(File("b"), {"from before"}));
  Save(std::string(3 << 20, 'x'));
  CheckpointCopyOptions slow = OwnOptions();
  slow.bytes_per_second = 100'000;
  {
    const CheckpointMirror mirror(slow);
    // The keeper writes beside its copy and its lock.
    while (ListDirectory(Directory("b"))->size() < 3) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_OK(RemoveFile(File("a")));
  }
  EXPECT_EQ(Contents("b"), std::nullopt);
}

TEST_F(CheckpointCopyTest, AKeeperOfAnIslandThatHasEndedKeepsNothing) {
  for (const bool has_ended : {false, true}) {
    ASSERT_OK(WriteFileAtomically(File("b"), {"one"}));
    if (has_ended) keeper_->RemoveAtEnd();
    keeper_.reset();
    EXPECT_EQ(Contents("b").has_value(), !has_ended);
    StartKeeper("127.0.0.1:0");
  }
}

TEST_F(CheckpointCopyTest, AKeeperThatComesBackGetsTheNext) {
  const CheckpointMirror mirror(OwnOptions());
  Save("one");
  AwaitCopy("one");
  const std::string address = keeper_->address();
  keeper_.reset();
  Save("two");
  StartKeeper(address);
  AwaitCopy("two");
}

TEST_F(CheckpointCopyTest, AnotherSecretIsRefused) {
  ASSERT_OK(WriteFileAtomically(File("b"), {"one"}));
  secret_ = "another secret";
  EXPECT_THAT(FetchCheckpoint(OwnOptions()), IsPermissionDenied());
  EXPECT_EQ(Contents("a"), std::nullopt);
}

TEST_F(CheckpointCopyTest, ADirectoryHasOneKeeper) {
  EXPECT_THAT(CheckpointKeeper::Start(Options("b", "127.0.0.1:0")).status(),
              IsFailedPrecondition("lock"));
}

}  // namespace
}  // namespace causeway
