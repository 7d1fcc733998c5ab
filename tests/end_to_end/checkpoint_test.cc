// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Kills an island and starts it again on its checkpoint directory: real
// processes, real SIGKILL.
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSteps = 600;

// The lease is longer than any test, so a successor must not wait for its end.
constexpr char kConfig[] = R"pb(
  name: "checkpoint"
  training {
    total_steps: 600
    batch_size: 4
    micro_batch_size: 2
    learning_rate: 5e-3
  }
  outer_optimizer { momentum: 0.5 }
  synchronization { inner_steps_per_round: 20 }
  membership { lease_seconds: 3600 heartbeat_seconds: 0.2 }
)pb";

class CheckpointTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    WriteRun(kConfig);
    coordinator_ = StartServing("coordinator", CoordinatorCommand(0));
  }

  // Each life of the island has a log of its own.
  std::unique_ptr<Process> Worker(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command =
        WorkerCommand("east", Port(),
                      {absl::StrCat("--checkpoint_dir=", Path("checkpoint")),
                       "--checkpoint_steps=3"});
    command.insert(command.end(), more.begin(), more.end());
    return Start(absl::StrCat("east-", ++lives_), std::move(command));
  }

  // Starts an island whose recent checkpoint is in memory (RecentFlags), and
  // kills it once recent_ is there.
  void KillWithRecent() {
    const std::unique_ptr<Process> worker = Worker(RecentFlags());
    EXPECT_TRUE(Await([&] { return std::filesystem::exists(recent_); }))
        << worker->Output();
    worker->End(SIGKILL);
  }
  std::vector<std::string> RecentFlags() const {
    return {absl::StrCat("--recent_checkpoint_dir=", Path("recent")),
            "--simulated_step_seconds=0.02"};
  }

  // Returns the inner steps of all merged contributions.
  uint64_t MergedSteps() const {
    const auto state = StateDirectory::OpenReadOnly(Path("state"));
    EXPECT_OK(state.status());
    if (!state.ok()) return 0;
    uint64_t steps = 0;
    for (uint64_t version = 0;; ++version) {
      const auto merged = (*state)->log().MergedContributions(0, version);
      EXPECT_OK(merged.status());
      if (!merged.ok() || merged->empty()) return steps;
      for (const ContributionRecord& record : *merged) {
        if (record.fate == ContributionFate::kMerged) {
          steps += record.inner_steps;
        }
      }
    }
  }

  std::unique_ptr<Process> coordinator_;
  const std::string recent_ = Path("recent/island.safetensors");
  int lives_ = 0;
};

TEST_F(CheckpointTest, AKilledIslandGoesOnAndEveryStepCountsOnce) {
  // A moment's stall of the machine does not take the run to its end.
  const std::string pace = "--simulated_step_seconds=0.01";
  auto east = Worker({pace});
  for (const int version : {3, 7, 12, 16, 21}) {
    ASSERT_TRUE(coordinator_->AwaitOutput(
        absl::StrCat("fragment 0 is at version ", version, ":")))
        << coordinator_->Output() << east->Output();
    EXPECT_EQ(east->End(SIGKILL), 128 + SIGKILL);
    ASSERT_FALSE(absl::StrContains(coordinator_->Output(),
                                   "every fragment has reached"));
    // A different number of ranks takes over the moments, too.
    east = Worker(version == 12 ? std::vector<std::string>{pace, "--threads=2",
                                                           "--ranks=2"}
                                : std::vector<std::string>{pace});
    ASSERT_TRUE(east->AwaitOutput("continuing from the checkpoint of step"))
        << east->Output();
  }
  ExpectOk(*east, *coordinator_);
  // The island was alone in its run, so it has made each step of the schedule.
  // Steps that it made twice, because it was killed after its checkpoint, count
  // once.
  EXPECT_EQ(MergedSteps(), kSteps);
}

TEST_F(CheckpointTest, AnIslandTrainsThoughTheMemoryForItsCheckpointIsFull) {
  const std::string refused = MountSmallDisk();
  if (!refused.empty()) GTEST_SKIP() << refused;
  const std::string recent =
      absl::StrCat("--recent_checkpoint_dir=", Path("disk/recent"));
  auto worker = Worker({recent, "--simulated_step_seconds=0.02"});
  ASSERT_TRUE(worker->AwaitOutput("step 20/")) << worker->Output();
  worker->End(SIGKILL);
  FillSmallDisk();
  worker = Worker({recent});
  EXPECT_EQ(worker->Wait(), 0) << worker->Output();
  EXPECT_THAT(worker->Output(),
              HasSubstr("no checkpoint is kept in memory for now"));
  EXPECT_EQ(coordinator_->Wait(), 0) << coordinator_->Output();
  EXPECT_EQ(MergedSteps(), kSteps);
}

// The coordinator is away when the island is started again.
TEST_F(CheckpointTest, ACheckpointStaysUntilItsStateIsHandedIn) {
  KillWithRecent();
  coordinator_->End(SIGKILL);
  const auto worker = Worker(RecentFlags());
  ASSERT_TRUE(worker->AwaitOutput("cannot join")) << worker->Output();
  EXPECT_EQ(worker->End(SIGTERM), 0) << worker->Output();
  EXPECT_TRUE(std::filesystem::exists(recent_)) << worker->Output();
}

// The next run would refuse to start with one.
TEST_F(CheckpointTest, NoRecentCheckpointOfAFinishedRunStays) {
  coordinator_->End(SIGKILL);
  coordinator_ = StartServing(
      "lasting",
      CoordinatorCommand(0, "state", {"--exit_when_finished=false"}));
  KillWithRecent();
  auto worker = Worker();
  EXPECT_EQ(worker->Wait(), 0) << worker->Output();
  ASSERT_TRUE(std::filesystem::exists(recent_));
  worker = Worker(RecentFlags());
  EXPECT_EQ(worker->Wait(), 0) << worker->Output();
  EXPECT_THAT(worker->Output(), HasSubstr("is finished: every fragment"));
  EXPECT_FALSE(std::filesystem::exists(recent_)) << worker->Output();
}

TEST_F(CheckpointTest, ADirectoryIsForOneProcessAndOneIsland) {
  auto east = Worker();
  ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 1:"));
  const auto twin = Worker();
  EXPECT_EQ(twin->Wait(), 1);
  EXPECT_THAT(twin->Output(), HasSubstr("is locked by pid"));
  east->End(SIGKILL);
  const auto other = Worker({"--island=west"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_THAT(other->Output(), HasSubstr("is that of island east"));
}

}  // namespace
}  // namespace causeway
