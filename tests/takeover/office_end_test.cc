// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Coordinators that were elected and then lead no longer: real processes and a
// real etcd.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/testing/notify_socket.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/election/testing/etcd_process.h"
#include "tests/end_to_end/free_port.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

// A snapshot is made only at the end.
constexpr char kConfig[] = R"pb(
  name: "office"
  training { total_steps: 1000000 batch_size: 1 learning_rate: 1e-3 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 1 }
  storage { snapshot_log_ratio: 1000 replay_seconds: 86400 }
)pb";

class OfficeEndTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    if (!EtcdProcess::IsInstalled()) GTEST_SKIP() << "there is no etcd";
    ASSERT_OK_AND_ASSIGN(etcd_, EtcdProcess::Make());
    WriteRun(kConfig);
  }

  std::unique_ptr<Process> Coordinator(const std::string& name, int port) {
    return Start(name,
                 CoordinatorCommand(port, name,
                                    {absl::StrCat("--name=", name),
                                     absl::StrCat("--etcd=", etcd_->member()),
                                     "--etcd_lease=2s"}));
  }
  void StartLeader() {
    leader_ = Coordinator("a", port_);
    ASSERT_TRUE(leader_->AwaitOutput("waiting for islands"))
        << leader_->Output();
  }
  // Starts a follower, and waits until it has what the leader has.
  void StartFollower() {
    follower_ = Coordinator("b", FreePort());
    ASSERT_TRUE(leader_->AwaitOutput("follower b is in sync"))
        << leader_->Output() << follower_->Output();
  }

  // Has the leader make versions whose snapshots never end.
  void MakeVersionsWithEndlessSnapshots() {
    const auto island = Start("east", WorkerCommand("east", port_));
    ASSERT_TRUE(leader_->AwaitOutput("fragment 0 is at version 2"))
        << leader_->Output();
    ASSERT_EQ(island->End(SIGTERM), 0) << island->Output();
    // A write to a pipe without a reader waits for ever.
    for (int version = 0; version < 1000; ++version) {
      const std::string snapshot = Path(
          absl::StrFormat("a/fragments/fragment-0000-v%08d.safetensors.tmp-%d",
                          version, leader_->pid()));
      ASSERT_EQ(mkfifo(snapshot.c_str(), 0600), 0) << snapshot;
    }
  }
  // Stops the leader until another one leads, and lets it find that out.
  void ReplaceLeader() {
    leader_->Signal(SIGSTOP);
    ASSERT_TRUE(follower_->AwaitOutput("waiting for islands"))
        << follower_->Output();
    leader_->Signal(SIGCONT);
    ASSERT_TRUE(leader_->AwaitOutput("coordinator leads the run; ending"))
        << leader_->Output();
  }

  const int port_ = FreePort();
  std::unique_ptr<EtcdProcess> etcd_;
  std::unique_ptr<Process> leader_;
  std::unique_ptr<Process> follower_;
};

TEST_F(OfficeEndTest, NobodyWaitsForTheSnapshotsOfALeaderThatEnds) {
  ASSERT_NO_FATAL_FAILURE(StartLeader());
  ASSERT_NO_FATAL_FAILURE(StartFollower());
  ASSERT_NO_FATAL_FAILURE(MakeVersionsWithEndlessSnapshots());
  leader_->Signal(SIGTERM);
  EXPECT_TRUE(follower_->AwaitOutput("waiting for islands"))
      << follower_->Output();
  EXPECT_TRUE(leader_->running()) << "the test has not delayed the snapshots";
  leader_->End(SIGKILL);
}

TEST_F(OfficeEndTest, AServiceThatWasReplacedDoesNotStop) {
  const NotifySocket socket(Path("socket"));
  ASSERT_NO_FATAL_FAILURE(StartLeader());
  ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
  ASSERT_NO_FATAL_FAILURE(StartFollower());
  ASSERT_NO_FATAL_FAILURE(ReplaceLeader());
  ASSERT_TRUE(leader_->AwaitOutput("following run")) << leader_->Output();
  leader_->Signal(SIGTERM);
  EXPECT_EQ(leader_->Wait(), 0) << leader_->Output();
  int stops = 0;
  for (std::string message;
       !(message = socket.Receive(absl::Seconds(1))).empty();) {
    if (message == "STOPPING=1") ++stops;
  }
  EXPECT_EQ(stops, 1);
}

// Otherwise systemd would kill a replaced leader of a large model.
TEST_F(OfficeEndTest, AReplacedLeaderFeedsItsWatchdogDuringItsSnapshots) {
  const NotifySocket socket(Path("socket"));
  ASSERT_EQ(setenv("WATCHDOG_USEC", "400000", /*overwrite=*/1), 0);
  std::atomic<int> fed = 0;
  std::atomic<bool> is_over = false;
  // A full socket would hold the leader up.
  std::thread reader([&] {
    while (!is_over) {
      if (socket.Receive(absl::Milliseconds(100)) == "WATCHDOG=1") ++fed;
    }
  });
  [&] {
    ASSERT_NO_FATAL_FAILURE(StartLeader());
    ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
    ASSERT_NO_FATAL_FAILURE(StartFollower());
    ASSERT_NO_FATAL_FAILURE(MakeVersionsWithEndlessSnapshots());
    ASSERT_NO_FATAL_FAILURE(ReplaceLeader());
    const int before = fed;
    EXPECT_TRUE(Await([&] { return fed >= before + 5; }));
    EXPECT_THAT(leader_->Output(), Not(HasSubstr("following run")))
        << "the test has not delayed the snapshots";
    leader_->End(SIGKILL);
  }();
  is_over = true;
  reader.join();
  unsetenv("WATCHDOG_USEC");
}

}  // namespace
}  // namespace causeway
