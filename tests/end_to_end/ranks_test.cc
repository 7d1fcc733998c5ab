// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island of two worker processes in a run with the outer loop.
#include <sched.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"
#include "worker/collective/crew.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

// $0: inner steps. $1: inner algorithm. $2: batch size.
constexpr char kConfig[] = R"pb(
  name: "ranks"
  model {
    layers: 2
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
  training {
    total_steps: $0
    batch_size: $2
    micro_batch_size: 2
    learning_rate: 5e-3
    warmup_steps: 10
    inner_algorithm: $1
  }
  synchronization {
    inner_steps_per_round: 20
    fragments: 3
    overlap_steps: 2
    uplink_format: FP32
    downlink_format: FP32
  }
)pb";

class RanksTest : public ProcessTestFixture {
 protected:
  struct Settings {
    int steps = 1'000'000;
    absl::string_view algorithm = "ACCO";
    int batch_size = 8;
    int rank_timeout = 5;
    // A command that starts rank 1, whose own command follows it.
    std::vector<std::string> prefix;
    // More flags of both ranks, and of rank 1.
    std::vector<std::string> flags;
    std::vector<std::string> follower_flags;
  };

  // Starts a run, and both ranks of its only island.
  void StartRun(const Settings& settings) {
    Write("run.textproto",
          absl::Substitute(kConfig, settings.steps, settings.algorithm,
                           settings.batch_size));
    coordinator_ = Start("coordinator", CoordinatorCommand(0));
    ASSERT_TRUE(coordinator_->AwaitOutput("waiting for islands"));
    std::vector<std::string> leader = WorkerCommand("pair", Port());
    // The coordinator's port is free on another address of this host.
    leader.insert(
        leader.end(),
        {"--island_size=2", absl::StrCat("--island_leader=127.0.0.2:", Port()),
         "--rank_host=127.0.0.1",
         absl::StrCat("--rank_timeout=", settings.rank_timeout)});
    leader.insert(leader.end(), settings.flags.begin(), settings.flags.end());
    std::vector<std::string> follower = settings.prefix;
    follower.insert(follower.end(), leader.begin(), leader.end());
    follower.push_back("--island_rank=1");
    follower.insert(follower.end(), settings.follower_flags.begin(),
                    settings.follower_flags.end());
    leader_ = Start("leader", std::move(leader));
    follower_ = Start("follower", std::move(follower));
    events_ =
        Start("events", {ProgramPath("cli/causeway"), "events", "--follow",
                         absl::StrCat("--coordinator=127.0.0.1:", Port())});
  }

  // Settings with which computing takes much longer than communicating.
  const Settings kMuchComputing = {
      .algorithm = "DDP", .batch_size = 256, .rank_timeout = 60};

  // Expects status, log and an event to say that rank 1 is slow.
  void ExpectRank1IsCalledSlow() {
    EXPECT_TRUE(events_->AwaitOutput("rank_slow")) << events_->Output();
    EXPECT_THAT(events_->Output(), HasSubstr("rank 1 is slow"));
    EXPECT_THAT(leader_->Output(), HasSubstr("rank 1 is slow"));
  }

  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<Process> leader_;
  std::unique_ptr<Process> follower_;
  std::unique_ptr<Process> events_;
};

TEST_F(RanksTest, TwoProcessesFinishARunWithOverlap) {
  StartRun({.steps = 60});
  ExpectOk(*leader_, *follower_, *coordinator_);
  EXPECT_THAT(leader_->Output(), HasSubstr("step 60/60"));
  EXPECT_THAT(leader_->Output(), HasSubstr("% hidden"));
}

TEST_F(RanksTest, OnlyRanksWithTheSecretTakePart) {
  const auto secret = [this](char letter) {
    return absl::StrCat("--rank_secret_file=",
                        Write(absl::StrCat("secret-", std::string(1, letter)),
                              std::string(40, letter) + "\n"));
  };
  StartRun({.flags = {secret('a'), "--rank_encryption"}});
  for (const std::string& own : {secret('b'), std::string("--threads=1")}) {
    std::vector<std::string> stranger = WorkerCommand("pair", Port());
    stranger.insert(stranger.end(),
                    {"--island_size=2", "--island_rank=1",
                     absl::StrCat("--island_leader=127.0.0.2:", Port()), own});
    const std::unique_ptr<Process> refused = Start("stranger", stranger);
    EXPECT_EQ(refused->Wait(), 1);
    EXPECT_THAT(refused->Output(), HasSubstr("a different secret"));
  }
  EXPECT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  EXPECT_EQ(leader_->End(SIGTERM), 0) << leader_->Output();
  EXPECT_EQ(follower_->Wait(), 0) << follower_->Output();
  EXPECT_THAT(leader_->Output(), HasSubstr("not proved the island's secret"));
}

TEST_F(RanksTest, ALeaderOffLoopbackNeedsASecretOrAFlag) {
  // The address is reserved for documentation, so no host has it.
  std::vector<std::string> worker = WorkerCommand("pair", 1);
  worker.insert(worker.end(),
                {"--island_size=2", "--island_leader=192.0.2.1:7100"});
  const std::unique_ptr<Process> refused = Start("refused", worker);
  EXPECT_EQ(refused->Wait(), 2);
  EXPECT_THAT(refused->Output(), HasSubstr("--rank_secret_file"));
  worker.push_back("--insecure_ranks");
  const std::unique_ptr<Process> warned = Start("warned", worker);
  EXPECT_EQ(warned->Wait(), 1);
  EXPECT_THAT(warned->Output(), HasSubstr("can join the island"));
  EXPECT_THAT(warned->Output(), HasSubstr("cannot listen on 192.0.2.1:7100"));
  worker.back() =
      absl::StrCat("--rank_secret_file=", Write("short", "password\n"));
  const std::unique_ptr<Process> short_one = Start("short", worker);
  EXPECT_EQ(short_one->Wait(), 1);
  EXPECT_THAT(short_one->Output(), HasSubstr("has 8 bytes; needed: 32"));
}

TEST_F(RanksTest, ProcessesWithUnequalRanksSaySoAndEnd) {
  StartRun({.flags = {"--threads=2"}, .follower_flags = {"--ranks=2"}});
  for (Process* const process : {leader_.get(), follower_.get()}) {
    EXPECT_EQ(process->Wait(), 1);
    EXPECT_THAT(process->Output(),
                HasSubstr("process 0 has 1 ranks, and process 1 has 2: give "
                          "all processes of the island the same --ranks"));
  }
}

// Process 2 takes its place, and does not connect.
TEST_F(RanksTest, AProcessThatWaitsForAnotherEndsAtOnceIfTold) {
  StartRun({.batch_size = 12, .flags = {"--island_size=3"}});
  ASSERT_TRUE(leader_->AwaitOutput("joined run")) << leader_->Output();
  ASSERT_OK_AND_ASSIGN(
      const std::optional<CrewPlace> place,
      AwaitPlace({.address = absl::StrCat("127.0.0.2:", Port()),
                  .now = SteadyWallClock()},
                 /*process=*/2, /*ranks=*/1, /*life=*/1, absl::Seconds(30)));
  ASSERT_TRUE(place.has_value());
  ASSERT_OK(place->table->Put("data of process 2", ""));
  // Rank 1 connects: it says where it listens.
  ASSERT_OK(place->table->Get("tcp/orders/1", absl::Seconds(30)));
  EXPECT_EQ(follower_->End(SIGTERM), 0) << follower_->Output();
  EXPECT_EQ(leader_->Wait(), 1);
  EXPECT_THAT(leader_->Output(),
              HasSubstr("rank 1 is dead: its process was ended by SIGTERM"));
}

TEST_F(RanksTest, TheLeaderNamesARankThatIsKilled) {
  StartRun({});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  follower_->Signal(SIGKILL);
  EXPECT_EQ(leader_->Wait(), 1);
  EXPECT_THAT(leader_->Output(), HasSubstr("rank 1 is dead"));
  EXPECT_TRUE(events_->AwaitOutput("rank_dead")) << events_->Output();
}

TEST_F(RanksTest, TheLeaderNamesARankThatIsStuck) {
  StartRun({});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  follower_->Signal(SIGSTOP);
  EXPECT_EQ(leader_->Wait(), 1);
  EXPECT_THAT(leader_->Output(), HasSubstr("rank 1 is stuck"));
  EXPECT_TRUE(events_->AwaitOutput("rank_stuck")) << events_->Output();
  // The rank learns what has happened when it continues.
  EXPECT_EQ(follower_->End(SIGCONT), 1) << follower_->Output();
}

// This happens when a virtual machine is moved, or a job suspended.
TEST_F(RanksTest, AnIslandThatWasStoppedAsAWholeGoesOn) {
  StartRun({.rank_timeout = 3, .flags = {"--ranks=2"}});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  for (Process* const process : {leader_.get(), follower_.get()}) {
    process->Signal(SIGSTOP);
  }
  // Longer than the limit.
  absl::SleepFor(absl::Seconds(4));
  const size_t before = leader_->Output().size();
  for (Process* const process : {leader_.get(), follower_.get()}) {
    process->Signal(SIGCONT);
  }
  while (leader_->running() &&
         leader_->Output().find("step ", before) == std::string::npos) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(leader_->End(SIGTERM), 0) << leader_->Output();
  EXPECT_EQ(follower_->Wait(), 0) << follower_->Output();
}

TEST_F(RanksTest, ARankThatIsStoppedNowAndThenIsSlow) {
  StartRun(kMuchComputing);
  ASSERT_TRUE(leader_->AwaitOutput("step 5/")) << leader_->Output();
  absl::Notification done;
  std::thread brake([&] {
    while (!done.HasBeenNotified()) {
      follower_->Signal(SIGSTOP);
      done.WaitForNotificationWithTimeout(absl::Milliseconds(60));
      follower_->Signal(SIGCONT);
      done.WaitForNotificationWithTimeout(absl::Milliseconds(20));
    }
  });
  ExpectRank1IsCalledSlow();
  done.Notify();
  brake.join();
}

// The rank runs all the time, but has a processor to itself for only a tenth of
// it.
TEST_F(RanksTest, ARankWithLittleProcessorTimeIsSlow) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &allowed)) ++processor;
  const std::vector<std::string> on_one = {"/usr/bin/taskset", "-c",
                                           absl::StrCat(processor)};
  std::vector<std::string> prefix = on_one;
  prefix.insert(prefix.end(), {"/usr/bin/nice", "-n", "10"});
  std::vector<std::string> busy = on_one;
  busy.insert(busy.end(), {"/bin/sh", "-c", "while :; do :; done"});
  const std::unique_ptr<Process> rival = Start("rival", busy);
  Settings settings = kMuchComputing;
  settings.prefix = prefix;
  StartRun(settings);
  ExpectRank1IsCalledSlow();
}

TEST_F(RanksTest, AFollowerNamesALeaderThatIsKilled) {
  StartRun({});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  leader_->Signal(SIGKILL);
  EXPECT_EQ(follower_->Wait(), 1);
  EXPECT_THAT(follower_->Output(), HasSubstr("rank 0 is dead"));
}

TEST_F(RanksTest, AFollowerNamesALeaderThatIsStuck) {
  StartRun({});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  leader_->Signal(SIGSTOP);
  EXPECT_EQ(follower_->Wait(), 1);
  EXPECT_THAT(follower_->Output(), HasSubstr("rank 0 is stuck"));
  EXPECT_THAT(follower_->Output(), Not(HasSubstr("type.googleapis")));
}

TEST_F(RanksTest, AFollowerEndsWithALeaderThatIsToldTo) {
  StartRun({});
  ASSERT_TRUE(leader_->AwaitOutput("step 25/")) << leader_->Output();
  EXPECT_EQ(leader_->End(SIGTERM), 0) << leader_->Output();
  EXPECT_EQ(follower_->Wait(), 0) << follower_->Output();
}

}  // namespace
}  // namespace causeway
