// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Islands under supervisors that repair them.
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// $0 is the number of steps from one audit to the next.
constexpr char kConfig[] = R"(
  name: "supervised"
  training {
    total_steps: 1000000
    batch_size: 8
    micro_batch_size: 2
    learning_rate: 1e-3
    audit_steps: $0
  }
  synchronization { inner_steps_per_round: 20 overlap_steps: 2 }
)";

// Steps are slow enough for the rest to be done between them.
constexpr char kStepTime[] = "--simulated_step_seconds=0.02";

class SupervisorTest : public ProcessTestFixture {
 protected:
  void StartCoordinator(uint64_t audit_steps = 0) {
    WriteRun(absl::Substitute(kConfig, audit_steps));
    coordinator_ = StartServing("coordinator", CoordinatorCommand(0));
  }

  // Starts a supervisor whose process `wrong` computes wrong numbers.
  std::unique_ptr<Process> StartWrongSupervisor(
      int wrong, const std::vector<std::string>& flags) const {
    std::string bytes(wrong, 0);
    std::vector<std::string> command = {
        "/usr/bin/env",
        absl::StrCat("LD_PRELOAD=",
                     ProgramPath("tests/chaos/libwrong_numbers.so")),
        absl::StrCat("CAUSEWAY_WRONG_NUMBERS=",
                     Write("wrong", bytes + std::string(64, 1)))};
    const std::vector<std::string> supervisor = SupervisorCommand(flags);
    command.insert(command.end(), supervisor.begin(), supervisor.end());
    return Start("supervisor", std::move(command));
  }

  // Returns `flags` and the flags of each of an island's two hosts. If
  // `successors`, the second host may lead, too.
  std::vector<std::string> HostFlags(std::vector<std::string> flags,
                                     bool successors = false) const {
    flags.insert(
        flags.end(),
        {"--island_size=2", "--rank_host=127.0.0.1",
         absl::StrCat("--island_leader=", Leader(),
                      successors ? absl::StrCat(",127.0.0.3:", Port()) : "")});
    return flags;
  }
  std::string Leader() const { return absl::StrCat("127.0.0.2:", Port()); }

  std::string Events() const {
    return RunTool({"events", "--coordinator", Address()});
  }

  std::unique_ptr<Process> StartSupervisor(
      absl::string_view log, const std::vector<std::string>& flags) const {
    return Start(log, SupervisorCommand(flags));
  }
  std::vector<std::string> SupervisorCommand(
      const std::vector<std::string>& flags) const {
    std::vector<std::string> command =
        WorkerCommand("pair", Port(), {"--on_rank_fault=act", kStepTime});
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }

  std::unique_ptr<Process> coordinator_;
};

// Returns a child of a process whose command has `word`, or -1.
pid_t FindChild(pid_t parent, absl::string_view word) {
  const std::string children =
      FileText(absl::StrCat("/proc/", parent, "/task/", parent, "/children"));
  for (const absl::string_view child :
       absl::StrSplit(children, ' ', absl::SkipEmpty())) {
    const std::string command =
        FileText(absl::StrCat("/proc/", child, "/cmdline"));
    for (const absl::string_view own : absl::StrSplit(command, '\0')) {
      if (own == word) return std::atoi(std::string(child).c_str());
    }
  }
  return -1;
}

TEST_F(SupervisorTest, ARankThatIsStoppedIsFoundLongBeforeOneThatIsSilent) {
  StartCoordinator();
  const auto supervisor = StartSupervisor(
      "supervisor", {"--supervise=2", "--hang_floor=600",
                     absl::StrCat("--recent_checkpoint_dir=", Path("memory"))});
  ASSERT_TRUE(supervisor->AwaitOutput("step 25/")) << supervisor->Output();
  const pid_t rank = FindChild(supervisor->pid(), "--island_rank=1");
  ASSERT_GT(rank, 0);
  kill(rank, SIGSTOP);
  EXPECT_TRUE(supervisor->AwaitOutput("continuing from the checkpoint of step"))
      << supervisor->Output();
  EXPECT_THAT(supervisor->Output(), HasSubstr("rank 1 is stuck"));
  EXPECT_THAT(supervisor->Output(), HasSubstr("a signal has stopped it"));
  EXPECT_TRUE(supervisor->AwaitOutput("step 100/")) << supervisor->Output();
}

TEST_F(SupervisorTest, AnIslandGoesOnWithoutARankThatComputesWrongNumbers) {
  StartCoordinator(/*audit_steps=*/10);
  const auto supervisor = StartWrongSupervisor(
      3, {"--supervise=4", "--min_island_size=2", "--shrink_after=0.5",
          absl::StrCat("--recent_checkpoint_dir=", Path("memory"))});
  ASSERT_TRUE(supervisor->AwaitOutput("trains on 2 of 4 processes: 0, 1"))
      << supervisor->Output();
  EXPECT_THAT(supervisor->Output(),
              AllOf(HasSubstr("the island continues without process 3"),
                    Not(HasSubstr("from the checkpoint"))));
  EXPECT_THAT(Events(), HasSubstr("rank 3 computes wrong numbers"));
  // The process stays out if the ranks start again for another reason.
  ASSERT_TRUE(supervisor->AwaitOutput("step 25/")) << supervisor->Output();
  kill(FindChild(supervisor->pid(), "--island_rank=1"), SIGKILL);
  ASSERT_TRUE(supervisor->AwaitOutput("step 80/")) << supervisor->Output();
  EXPECT_THAT(supervisor->Output(), Not(HasSubstr("processes: 0, 3")));
}

TEST_F(SupervisorTest, AnIslandThatNeedsARankWithWrongNumbersEnds) {
  StartCoordinator(/*audit_steps=*/10);
  std::filesystem::create_directories(Path("memory/copy"));
  Write("memory/copy/island.safetensors", "of a lost host");
  // It is unknown which one of two ranks is wrong.
  const auto supervisor = StartWrongSupervisor(
      1, {"--supervise=2", "--min_island_size=1",
          absl::StrCat("--checkpoint_dir=", Path("saved")),
          absl::StrCat("--recent_checkpoint_dir=", Path("memory"))});
  EXPECT_EQ(supervisor->Wait(), 3) << supervisor->Output();
  EXPECT_THAT(Events(),
              HasSubstr("failed: step 10: in an audit some ranks had"));
  // The ranks' results are not saved, not even in the copy of a lost host.
  for (const char* const file :
       {"saved/island.safetensors", "memory/island.safetensors",
        "memory/copy/island.safetensors"}) {
    EXPECT_FALSE(std::filesystem::exists(Path(file))) << file;
  }
}

TEST_F(SupervisorTest, TheCoordinatorHearsThatASupervisorHasGivenUp) {
  StartCoordinator();
  const auto supervisor = StartSupervisor("supervisor", {"--supervise=2"});
  ASSERT_TRUE(supervisor->AwaitOutput("step 25/")) << supervisor->Output();
  // A rank is killed as soon as it is there.
  while (supervisor->running()) {
    const pid_t rank = FindChild(supervisor->pid(), "--island_rank=1");
    if (rank > 0) kill(rank, SIGKILL);
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(supervisor->Wait(), 3) << supervisor->Output();
  EXPECT_THAT(Events(), AllOf(HasSubstr("rank 1 is dead: process 1 was killed"),
                              HasSubstr("its supervisor has given up")));
}

TEST_F(SupervisorTest, AllHostsEndForGoodWithAnIslandThatComputesWrongNumbers) {
  StartCoordinator(/*audit_steps=*/10);
  const auto other =
      StartSupervisor("other", HostFlags({"--supervise=1", "--island_rank=1"}));
  const auto host = StartWrongSupervisor(0, HostFlags({"--supervise=1"}));
  // There is no place for a spare.
  const auto spare =
      StartSupervisor("spare", HostFlags({"--supervise=1", "--island_rank=2"}));
  for (Process* const one : {host.get(), other.get(), spare.get()}) {
    EXPECT_EQ(one->Wait(), 3) << one->Output();
  }
}

// The other host waits for process 0, which does not come.
TEST_F(SupervisorTest, AllHostsEndForGoodIfTheSupervisorOfProcess0GivesUp) {
  StartCoordinator();
  const auto other =
      StartSupervisor("other", HostFlags({"--supervise=1", "--island_rank=1"}));
  const auto host = StartSupervisor("host", HostFlags({"--supervise=1"}));
  ASSERT_TRUE(host->AwaitOutput("step 25/")) << host->Output();
  while (!absl::StrContains(host->Output(), "it is not restarted")) {
    const pid_t rank = FindChild(host->pid(), "--island_rank=0");
    if (rank > 0) kill(rank, SIGKILL);
    absl::SleepFor(absl::Milliseconds(5));
  }
  for (Process* const one : {host.get(), other.get()}) {
    EXPECT_EQ(one->Wait(), 3) << one->Output();
  }
  EXPECT_THAT(other->Output(), HasSubstr("its supervisor has given up"));
}

// The ranks see only that the connections of one have broken.
TEST_F(SupervisorTest, WhatTheSupervisorOfAnotherHostHasSeenIsReported) {
  StartCoordinator();
  const auto host = StartSupervisor(
      "host", HostFlags({"--supervise=1", "--hang_floor=600",
                         absl::StrCat("--checkpoint_dir=", Path("saved"))}));
  const auto other = StartSupervisor(
      "other",
      HostFlags({"--supervise=1", "--hang_floor=600", "--island_rank=1",
                 absl::StrCat("--checkpoint_dir=", Path("elsewhere"))}));
  ASSERT_TRUE(host->AwaitOutput("step 25/")) << host->Output();
  const pid_t rank = FindChild(other->pid(), "--island_rank=1");
  ASSERT_GT(rank, 0);
  kill(rank, SIGSTOP);
  const auto events = Start("events", {ProgramPath("cli/causeway"), "events",
                                       "--follow", "--coordinator", Address()});
  EXPECT_TRUE(events->AwaitOutput("rank_stuck")) << host->Output();
  EXPECT_THAT(events->Output(), HasSubstr("a signal has stopped it"));
}

// A process that has joined and waits for the others is not yet noted beside a
// checkpoint.
TEST_F(SupervisorTest, AProcessThatDiesAsItHasJoinedIsReplacedAtOnce) {
  StartCoordinator();
  const auto host = StartSupervisor(
      "host", HostFlags({"--supervise=1", "--checkpoint_steps=10",
                         absl::StrCat("--checkpoint_dir=", Path("saved"))},
                        /*successors=*/true));
  const auto other = StartSupervisor(
      "other",
      HostFlags({"--supervise=1", "--island_rank=1"}, /*successors=*/true));
  ASSERT_TRUE(host->AwaitOutput("step 25/")) << host->Output();
  const auto await_joins = [&](size_t count) {
    EXPECT_TRUE(Await([&] {
      return std::vector<std::string>(
                 absl::StrSplit(host->Output(), "] joined run "))
                 .size() > count;
    })) << host->Output();
  };
  const pid_t before = FindChild(host->pid(), "--island_rank=0");
  other->End(SIGKILL);
  pid_t leader = before;
  EXPECT_TRUE(Await(
      [&] {
        leader = FindChild(host->pid(), "--island_rank=0");
        return leader != before && leader > 0;
      },
      absl::Minutes(1), absl::Milliseconds(1)));
  // Once its supervisor knows that it has joined, it tells other leaders so,
  // and soon after that it is noted beside the checkpoint.
  while (host->running() &&
         !RendezvousAt({.address = Leader(), .now = SteadyWallClock()})
              ->Get("joined", absl::Seconds(60))
              .ok()) {
  }
  kill(leader, SIGKILL);
  await_joins(3);
  EXPECT_THAT(host->Output(), Not(HasSubstr("cannot join")));
}

// Addresses and directories of this host represent two hosts and their memory.
TEST_F(SupervisorTest, AnIslandGoesOnFromTheCopyOfALostHost) {
  StartCoordinator();
  const std::string copy = absl::StrCat("127.0.0.3:", Port());
  const std::vector<std::string> both = {
      "--supervise=1", "--island_size=2", "--rank_host=127.0.0.1",
      absl::StrCat("--island_leader=127.0.0.2:", Port())};
  std::vector<std::string> first = both;
  first.insert(first.end(),
               {absl::StrCat("--recent_checkpoint_dir=", Path("first")),
                absl::StrCat("--copy_checkpoint_to=", copy)});
  std::vector<std::string> second = both;
  second.insert(second.end(),
                {"--island_rank=1",
                 absl::StrCat("--recent_checkpoint_dir=", Path("second")),
                 absl::StrCat("--keep_checkpoint_copy=", copy)});
  const auto keeper = StartSupervisor("keeper", second);
  auto host = StartSupervisor("host", first);
  ASSERT_TRUE(host->AwaitOutput("step 100/")) << host->Output();
  const std::string file = Path("second/copy/island.safetensors");
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(file); }));

  host->End(SIGKILL);
  std::error_code error;
  // Its process 0 may still be about to end.
  do {
    std::filesystem::remove_all(Path("first"), error);
  } while (std::filesystem::exists(Path("first")));
  host = StartSupervisor("replacement", first);
  EXPECT_TRUE(host->AwaitOutput("continuing from the checkpoint of step"))
      << host->Output();
  EXPECT_THAT(host->Output(), HasSubstr("from its copy at 127.0.0.3:"));
  EXPECT_TRUE(host->AwaitOutput("step 200/")) << host->Output();

  // An island that has left needs no copy.
  EXPECT_EQ(host->End(SIGTERM), 0) << host->Output();
  EXPECT_EQ(keeper->Wait(), 0) << keeper->Output();
  EXPECT_FALSE(std::filesystem::exists(file));
}

// The coordinator is away when the island is started again.
TEST_F(SupervisorTest, CheckpointsInMemoryStayUntilTheirStateIsHandedIn) {
  StartCoordinator();
  std::vector<std::string> flags =
      HostFlags({"--supervise=1", "--min_island_size=1", "--shrink_after=0.1",
                 absl::StrCat("--recent_checkpoint_dir=", Path("memory")),
                 absl::StrCat("--keep_checkpoint_copy=127.0.0.4:", Port())},
                /*successors=*/true);
  const std::string recent = Path("memory/island.safetensors");
  const std::string copy = Path("memory/copy/island.safetensors");
  auto host = StartSupervisor("host", flags);
  EXPECT_TRUE(Await([&] { return std::filesystem::exists(recent); }));
  host->End(SIGKILL);
  coordinator_->End(SIGKILL);
  std::filesystem::copy_file(recent, copy);
  host = StartSupervisor("again", flags);
  ASSERT_TRUE(host->AwaitOutput("cannot join")) << host->Output();
  EXPECT_EQ(host->End(SIGTERM), 0) << host->Output();
  for (const std::string& file : {recent, copy}) {
    EXPECT_TRUE(std::filesystem::exists(file)) << file << host->Output();
  }
  // A successor looks for a leader first.
  flags.push_back("--island_rank=1");
  host = StartSupervisor("successor", flags);
  EXPECT_TRUE(
      Await([&] { return FindChild(host->pid(), "--island_rank=1") > 0; }));
  host->End(SIGTERM);
  for (const std::string& file : {recent, copy}) {
    EXPECT_TRUE(std::filesystem::exists(file)) << file << host->Output();
  }
}

}  // namespace
}  // namespace causeway
