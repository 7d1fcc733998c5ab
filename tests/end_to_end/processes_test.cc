// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the daemons as users run them: real processes, real text, real SIGKILL.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kConfig[] = R"pb(
  name: "processes"
  training {
    total_steps: 120
    batch_size: 4
    learning_rate: 5e-3
    warmup_steps: 10
  }
  outer_optimizer { momentum: 0.5 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 2 lease_seconds: 3 heartbeat_seconds: 0.2 }
)pb";

class ProcessesTest : public ProcessTestFixture {
 protected:
  std::unique_ptr<Process> Coordinator(const std::string& config, int port = 0,
                                       absl::string_view state = "state") {
    WriteRun(config);
    return Start("coordinator", CoordinatorCommand(port, state));
  }

  // Returns the port of the running coordinator.
  int PortOf(Process& coordinator) const {
    EXPECT_TRUE(coordinator.AwaitOutput("waiting for islands"))
        << coordinator.Output();
    return Port();
  }

  std::unique_ptr<Process> Worker(const std::string& island, int port,
                                  const std::string& data = kText) {
    std::vector<std::string> command = WorkerCommand(island, port);
    command.insert(command.end(),
                   {absl::StrCat("--data=", data),
                    absl::StrCat("--preemption_notice_file=", Path("notice")),
                    absl::StrCat("--simulated_step_seconds=", step_seconds_)});
    return Start(island, std::move(command));
  }

  // Starts a coordinator and two islands.
  void StartRun(const std::string& config = kConfig) {
    coordinator_ = Coordinator(config);
    port_ = PortOf(*coordinator_);
    east_ = Worker("east", port_);
    west_ = Worker("west", port_);
  }

  // Returns the loss of the outer parameters on the held-out part of the text.
  double ValidationLoss(absl::string_view state) {
    const std::string output =
        RunTool({"evaluate", Path(state), "--data", kText, "--json"});
    return nlohmann::json::parse(output.substr(output.find('{')))["loss"];
  }

  // The least time that islands take for a step.
  double step_seconds_ = 0;
  std::unique_ptr<Process> coordinator_;
  int port_ = 0;
  std::unique_ptr<Process> east_;
  std::unique_ptr<Process> west_;
};

TEST_F(ProcessesTest, TwoIslandsLearnFromText) {
  auto coordinator = Coordinator(kConfig);
  const int port = PortOf(*coordinator);
  const double before = ValidationLoss("state");
  auto east = Worker("east", port);
  auto west = Worker("west", port);
  ExpectOk(*east, *west, *coordinator);
  // Guessing bytes at random costs ln 258 = 5.55 nats.
  EXPECT_NEAR(before, 5.55, 0.1);
  EXPECT_LT(ValidationLoss("state"), 3.2);
}

TEST_F(ProcessesTest, AnIslandThatIsLateForTheRunHasNothingToDo) {
  WriteRun(
      absl::StrReplaceAll(kConfig, {{"min_islands: 2", "min_islands: 1"}}));
  std::vector<std::string> command = CoordinatorCommand(0, "state");
  command.pop_back();  // --exit_when_finished
  auto coordinator = Start("coordinator", std::move(command));
  const int port = PortOf(*coordinator);
  ExpectOk(*Worker("east", port));
  auto west = Worker("west", port);
  ExpectOk(*west);
  EXPECT_THAT(west->Output(), HasSubstr("is finished: every fragment"));
}

TEST_F(ProcessesTest, AKilledIslandDelaysTheOtherByItsLeaseAndMayComeBack) {
  // The other one does not finish the run alone.
  step_seconds_ = 0.01;
  StartRun(
      absl::StrReplaceAll(kConfig, {{"total_steps: 120", "total_steps: 400"}}));
  ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 2"));
  EXPECT_EQ(west_->End(SIGKILL), 128 + SIGKILL);
  const absl::Time killed = absl::Now();
  ASSERT_TRUE(coordinator_->AwaitOutput("west (incarnation 1) was evicted"));
  // The bound is the lease, a tick, and slack for a loaded machine.
  EXPECT_LT(absl::Now() - killed, absl::Seconds(3 + 8));
  west_ = Worker("west", port_);
  EXPECT_TRUE(coordinator_->AwaitOutput("west joined (incarnation 2"));
  ExpectOk(*east_, *west_, *coordinator_);
}

TEST_F(ProcessesTest, AKilledCoordinatorContinuesWhereItCommitted) {
  // No island is evicted, however late it connects again.
  const std::string config =
      absl::StrReplaceAll(kConfig, {{"total_steps: 120", "total_steps: 400"},
                                    {"lease_seconds: 3", "lease_seconds: 60"}});
  StartRun(config);
  ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 3"));
  EXPECT_EQ(coordinator_->End(SIGKILL), 128 + SIGKILL);
  coordinator_ = Coordinator(config, port_);
  ExpectOk(*east_, *west_, *coordinator_);
  // Both islands kept their incarnations, and every version was made once.
  const std::string log = coordinator_->Output();
  EXPECT_FALSE(absl::StrContains(log, "incarnation 2")) << log;
  for (int version = 1; version <= 20; ++version) {
    const std::string line =
        absl::StrCat("fragment 0 is at version ", version, ":");
    const size_t first = log.find(line);
    // The log line of a commit just before the kill may be missing.
    if (first == std::string::npos) continue;
    EXPECT_EQ(log.find(line, first + 1), std::string::npos) << line;
  }
  EXPECT_THAT(log, HasSubstr("fragment 0 is at version 20:"));
}

TEST_F(ProcessesTest, IslandsWaitForACoordinatorThatIsNotUpYet) {
  // Take a port that was free a moment ago.
  auto coordinator = Coordinator(kConfig);
  const int port = PortOf(*coordinator);
  EXPECT_EQ(coordinator->End(SIGTERM), 0) << coordinator->Output();
  auto east = Worker("east", port);
  auto west = Worker("west", port);
  EXPECT_TRUE(east->AwaitOutput("no coordinator answers at"));
  coordinator = Coordinator(kConfig, port);
  ExpectOk(*east, *west);
}

TEST_F(ProcessesTest, ACoordinatorWithoutEtcdSaysWhatItWaitsFor) {
  WriteRun(kConfig);
  std::vector<std::string> command = CoordinatorCommand(0);
  command.insert(command.end(),
                 {"--etcd=127.0.0.1:9", "--advertise=127.0.0.1:9"});
  const auto coordinator = Start("coordinator", std::move(command));
  EXPECT_TRUE(
      coordinator->AwaitOutput("etcd does not answer: etcd at 127.0.0.1:9"))
      << coordinator->Output();
}

TEST_F(ProcessesTest, SigtermEndsAnIslandCleanly) {
  auto coordinator = Coordinator(kConfig);
  const int port = PortOf(*coordinator);
  auto east = Worker("east", port);
  ASSERT_TRUE(east->AwaitOutput("waiting for the other islands"));
  EXPECT_EQ(east->End(SIGTERM), 0) << east->Output();
  EXPECT_TRUE(coordinator->AwaitOutput("east (incarnation 1) left"));
}

TEST_F(ProcessesTest, APreemptedIslandHandsInWhatItHas) {
  // The window is so long that only a part of it can be contributed.
  StartRun(absl::StrReplaceAll(
      kConfig,
      {{"total_steps: 120", "total_steps: 100000"},
       {"inner_steps_per_round: 20", "inner_steps_per_round: 50000"}}));
  ASSERT_TRUE(east_->AwaitOutput("step 2/"));
  ASSERT_TRUE(west_->AwaitOutput("step 2/"));
  Write("notice", "terminate");
  ExpectOk(*east_, *west_);
  EXPECT_TRUE(coordinator_->AwaitOutput("left: pre-emption notice"));
  // There is no other island to wait for, so the contribution is merged.
  EXPECT_TRUE(
      coordinator_->AwaitOutput("fragment 0 is at version 1: merged "
                                "east, west"));
}

TEST_F(ProcessesTest, ARunThatHasLostItsIslandsSaysSo) {
  StartRun(absl::StrReplaceAll(
      kConfig, {{"total_steps: 120", "total_steps: 100000"},
                {"min_islands: 2", "min_islands: 2 quorum: 2"}}));
  const std::string address = absl::StrCat("127.0.0.1:", port_);
  ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 3"));
  std::string status;
  // The time that is left is known after some rounds.
  do {
    ASSERT_TRUE(east_->running()) << east_->Output();
    status = RunTool({"status", "--coordinator", address});
    EXPECT_THAT(status, HasSubstr(", running\n"));
  } while (!absl::StrContains(status, " left\n"));
  RunTool({"status", "--check", "--coordinator", address}, 0);
  east_->Signal(SIGKILL);
  west_->Signal(SIGKILL);
  ASSERT_TRUE(coordinator_->AwaitOutput("east (incarnation 1) was evicted"));
  ASSERT_TRUE(coordinator_->AwaitOutput("west (incarnation 1) was evicted"));
  EXPECT_THAT(RunTool({"status", "--coordinator", address}),
              AllOf(HasSubstr(", waiting for islands for "),
                    HasSubstr("attention   critical for "),
                    HasSubstr(": waiting for 2 of 2 islands"),
                    testing::Not(HasSubstr(" left\n"))));
  EXPECT_THAT(RunTool({"status", "--check", "--coordinator", address}, 4),
              HasSubstr("next: `causeway islands --all`"));
}

TEST_F(ProcessesTest, AnIslandSaysForWhomItWaitsAndForHowLong) {
  StartRun(absl::StrReplaceAll(
      kConfig, {{"total_steps: 120", "total_steps: 100000"},
                {"min_islands: 2 lease_seconds: 3",
                 "min_islands: 2 quorum: 2 lease_seconds: 600"}}));
  ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 2"));
  west_->Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  const auto await_status = [&](const testing::Matcher<std::string>& expected) {
    std::string status;
    do {
      ASSERT_TRUE(east_->running()) << east_->Output();
      status = RunTool(
          {"status", "--coordinator", absl::StrCat("127.0.0.1:", port_)});
    } while (!testing::Matches(expected)(status));
  };
  await_status(testing::ContainsRegex(
      "waiting for fragment 0's update, due at step [0-9]+0 \\(for [3-9]s; "
      "awaited: west\\)\n"));
  EXPECT_GT(absl::Now() - stopped, absl::Seconds(2));
  west_->Signal(SIGCONT);
  await_status(testing::Not(HasSubstr("awaited: west")));
}

TEST_F(ProcessesTest, BadInputIsRefusedBeforeAnythingHappens) {
  Write("run.textproto", "model { layer: 2 }");
  auto bad = Start("coordinator", CoordinatorCommand(0));
  // After this code, systemd does not start it again.
  EXPECT_EQ(bad->Wait(), 2);
  EXPECT_THAT(bad->Output(), HasSubstr("run.textproto:1:"));
  EXPECT_THAT(bad->Output(), HasSubstr("Allowed: layers, hidden_size"));

  auto coordinator = Coordinator(kConfig);
  const int port = PortOf(*coordinator);
  auto other = Coordinator(kConfig, port, "other-state");
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_THAT(other->Output(), HasSubstr("--listen: cannot listen on"));
  EXPECT_FALSE(std::filesystem::exists(Path("other-state")));
  auto locked = Coordinator(kConfig, 0);
  EXPECT_EQ(locked->Wait(), 1);
  EXPECT_THAT(locked->Output(), HasSubstr("in use by another coordinator"));

  auto missing = Worker("missing", port, Path("no-such-file"));
  EXPECT_EQ(missing->Wait(), 1);
  EXPECT_THAT(missing->Output(),
              HasSubstr("no-such-file: No such file or directory"));
  auto folder = Worker("folder", port, "/");
  EXPECT_EQ(folder->Wait(), 1);
  EXPECT_THAT(folder->Output(), HasSubstr("--data: / is not a regular file"));
  auto empty = Worker("empty", port, Write("empty.txt", ""));
  EXPECT_EQ(empty->Wait(), 1);
  EXPECT_THAT(empty->Output(), HasSubstr("empty.txt"));
  auto brief = Worker("brief", port, Write("short.txt", "To be"));
  EXPECT_EQ(brief->Wait(), 1);
  EXPECT_THAT(brief->Output(), HasSubstr("sequence"));

  auto east = Worker("east", port);
  ASSERT_TRUE(coordinator->AwaitOutput("island east joined"));
  auto twin = Worker("east", port);
  EXPECT_EQ(twin->Wait(), 1);
  EXPECT_THAT(twin->Output(), HasSubstr("already joined"));

  EXPECT_EQ(coordinator->End(SIGTERM), 0);
  Write("run.textproto", absl::StrReplaceAll(FileText(Path("run.textproto")),
                                             {{"layers: 2", "layers: 3"}}));
  auto changed = Start("coordinator", CoordinatorCommand(0));
  EXPECT_EQ(changed->Wait(), 2);
  EXPECT_THAT(changed->Output(), HasSubstr("model.layers: 2 -> 3"));
}

TEST_F(ProcessesTest, FlagsThatMeanNothingAreRefused) {
  const std::string two_files = absl::StrCat("--data=", kText, ",", kText);
  const struct {
    std::vector<std::string> flags;
    std::string problem;
  } kCases[] = {
      {{"--island_size=2", "--island_leader=127.0.0.1:0"},
       "--island_leader is \"127.0.0.1:0\"; allowed: host:port"},
      {{"--island_size=2", "--island_leader=127.0.0.1:1,1=127.0.0.2"},
       "--island_leader is \"127.0.0.2\"; allowed: host:port"},
      {{"--island_size=2", "--island_leader=1=127.0.0.1:1"},
       "--island_leader: \"1=127.0.0.1:1\" is no list of addresses"},
      // A process that may lead needs the coordinator.
      {{"--island_size=2", "--island_leader=127.0.0.1:1,127.0.0.2:1",
        "--island_rank=1", "--coordinator="},
       "--coordinator is needed"},
      {{"--hang_floor=3"}, "--hang_floor needs --supervise"},
      {{"--leave_out_slow=0.1"}, "--leave_out_slow needs --supervise"},
      {{"--supervise=2", "--leave_out_slow=1"},
       "--leave_out_slow must be 0, or at least 0.01"},
      {{"--supervise=2", "--on_rank_fault=act", "--leave_out_slow=0.1"},
       "--leave_out_slow needs a --min_island_size"},
      {{"--supervise=2", "--min_island_size=1", "--leave_out_slow=0.1"},
       "--on_rank_fault=decide or act"},
      {{"--on_rank_fault=act"}, "--on_rank_fault needs --supervise"},
      {{"--data_weights=-1"}, "--data_weights: a weight of -1"},
      {{two_files, "--data_weights=1,2,3"},
       "--data_weights has 3 weights for 2 files of --data"},
      {{"--data_weights=1,2"},
       "--data_weights has 2 weights for 1 file of --data"},
      {{"--uplink_mbit_s=0.1"}, "must be 0, or 0.2 or more"},
      {{"--metrics_listen=127.0.0.1"}, "--metrics_listen is \"127.0.0.1\""},
      {{"--coordinator=localhost"}, "\"localhost\" is not host:port"}};
  for (const auto& [flags, problem] : kCases) {
    std::vector<std::string> command = WorkerCommand("east", 1);
    command.insert(command.end(), flags.begin(), flags.end());
    auto refused = Start("refused", command);
    EXPECT_EQ(refused->Wait(), 2);
    EXPECT_THAT(refused->Output(), HasSubstr(problem));
  }
}

TEST_F(ProcessesTest, WithoutCertificatesItListensBeyondThisHostOnlyIfTold) {
  WriteRun(kConfig);
  std::vector<std::string> command = CoordinatorCommand(0);
  command.push_back("--listen=0.0.0.0:0");
  auto coordinator = Start("refused", command);
  EXPECT_EQ(coordinator->Wait(), 2);
  EXPECT_THAT(coordinator->Output(),
              AllOf(HasSubstr("--tls auto"), HasSubstr("--tls_client_ca"),
                    HasSubstr("--insecure")));
  EXPECT_NE(access(Path("state").c_str(), F_OK), 0);

  command.push_back("--insecure");
  coordinator = Start("told", command);
  const int port = PortOf(*coordinator);
  constexpr char kWarning[] = "clients show no certificates";
  EXPECT_THAT(coordinator->Output(), HasSubstr(kWarning));
  EXPECT_THAT(
      RunTool({"status", "--coordinator", absl::StrCat("127.0.0.1:", port)}),
      HasSubstr(kWarning));
}

}  // namespace
}  // namespace causeway
