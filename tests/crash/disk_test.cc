// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's disk fails: commits stop with a clear message, status and
// parameters are still served, and the run continues when the disk works again.
#include <sys/statvfs.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::ContainsRegex;

constexpr char kConfig[] = R"pb(
  name: "disk"
  model {
    layers: 1
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 16
  }
  training { total_steps: 600 batch_size: 2 }
  synchronization { inner_steps_per_round: 20 }
  membership { lease_seconds: 600 heartbeat_seconds: 0.2 }
)pb";

class DiskTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(Path("disk"));
    Write("run.textproto", kConfig);
  }
  void TearDown() override {
    coordinator_.reset();
    island_.reset();
  }

  void StartCoordinator(const std::vector<std::string>& environment) {
    std::vector<std::string> command = {"/usr/bin/env"};
    command.insert(command.end(), environment.begin(), environment.end());
    const std::vector<std::string> coordinator =
        CoordinatorCommand(0, "disk/state", {"--merge_threads=1"});
    command.insert(command.end(), coordinator.begin(), coordinator.end());
    coordinator_ = StartServing("coordinator", std::move(command));
  }

  // Returns the environment of a coordinator that meets this fault as long as
  // Path("fault") exists (crash_points.cc).
  std::vector<std::string> Fault(absl::string_view kind) const {
    return {absl::StrCat("LD_PRELOAD=",
                         ProgramPath("tests/crash/libcrash_points.so")),
            absl::StrCat("CAUSEWAY_CRASH_ROOT=", Path("disk/state")),
            absl::StrCat("CAUSEWAY_CRASH_", kind, "=", Path("fault"))};
  }

  // Starts a run with its state on Path("disk").
  void StartRun(const std::vector<std::string>& environment) {
    StartCoordinator(environment);
    // The island is slow, so that the run does not end before the fault.
    island_ = Start("east", WorkerCommand("east", Port(),
                                          {"--simulated_step_seconds=0.005"}));
    ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 2:"));
  }

  // Expects, while the disk takes no writes, that the coordinator answers calls
  // and says that it is suspended for a reason that matches `why`.
  void ExpectSuspended(absl::string_view why) {
    std::string said;
    EXPECT_TRUE(Await([&] {
      said = RunTool({"status", "--coordinator", Address(), "--json"});
      return HasFailure() || absl::StrContains(said, "SUSPENDED");
    })) << coordinator_->Output();
    EXPECT_THAT(said, ContainsRegex(std::string(why)));
    EXPECT_TRUE(coordinator_->running());
    EXPECT_TRUE(island_->running());
  }

  void ExpectToFinish() {
    ExpectOk(*island_, *coordinator_);
    EXPECT_TRUE(absl::StrContains(coordinator_->Output(),
                                  "fragment 0 is at version 30:"));
  }

  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<Process> island_;
};

TEST_F(DiskTest, AFullDiskStopsCommitsUntilThereIsSpace) {
  const std::string refused = MountSmallDisk();
  if (!refused.empty()) GTEST_SKIP() << refused;
  StartRun({});
  FillSmallDisk();
  ExpectSuspended("No space left|disk is full");
  std::filesystem::remove(Path("disk/filler"));
  ExpectToFinish();
  // The stored state does not grow with the run.
  struct statvfs disk;
  ASSERT_EQ(statvfs(Path("disk").c_str(), &disk), 0);
  EXPECT_GT(disk.f_bavail, disk.f_blocks / 2);
}

// The coordinator finds out by itself whether a failed write to the log took
// place.
TEST_F(DiskTest, AReadOnlyDiskStopsCommitsUntilItTakesWritesAgain) {
  StartRun(Fault("REFUSE"));
  Write("fault", "now");
  ExpectSuspended("Read-only file system|I/O error");
  std::filesystem::remove(Path("fault"));
  ExpectToFinish();
}

TEST_F(DiskTest, AFailedSyncStopsCommitsUntilTheOutcomeIsKnown) {
  StartRun(Fault("NO_SYNC"));
  Write("fault", "now");
  ExpectSuspended("(Input/output|I/O) error");
  std::filesystem::remove(Path("fault"));
  ExpectToFinish();
}

// Syncs fail only for a moment in the middle of the run, whatever is being
// written. The events in the log show what the coordinator found.
TEST_F(DiskTest, AWriteOfUnknownOutcomeIsReconciledInTheRunningProcess) {
  StartRun(Fault("NO_SYNC"));
  const std::string fault = Path("fault");
  for (int i = 0; i < 200; ++i) {
    Write("fault", "now");
    const bool unknown =
        coordinator_->AwaitOutput("outcome unknown", absl::Milliseconds(30));
    std::filesystem::remove(fault);
    if (unknown) break;
  }
  ExpectToFinish();
  EXPECT_TRUE(
      absl::StrContains(coordinator_->Output(), "the disk takes writes again"))
      << coordinator_->Output();
}

}  // namespace
}  // namespace causeway
