// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The daemons as services of a service manager.
#include <signal.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/notify_socket.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

constexpr char kConfig[] = R"pb(
  name: "service"
  training { total_steps: 1000000 batch_size: 1 learning_rate: 1e-3 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 1 }
)pb";

class ServiceTest : public ProcessTestFixture {
 protected:
  ServiceTest() { setenv("WATCHDOG_USEC", "400000", /*overwrite=*/1); }
  ~ServiceTest() override { unsetenv("WATCHDOG_USEC"); }

  std::unique_ptr<Process> StartCoordinator() {
    WriteRun(kConfig);
    return StartServing("coordinator", CoordinatorCommand(0));
  }

  // Starts an island and waits until it tells `socket` that it is ready.
  std::unique_ptr<Process> StartWorker(
      const NotifySocket& socket, const std::vector<std::string>& flags = {}) {
    auto worker = Start("east", WorkerCommand("east", Port(), flags));
    while (true) {
      const std::string message = socket.Receive();
      if (message == "READY=1") return worker;
      EXPECT_EQ(message, "WATCHDOG=1") << worker->Output();
      if (message.empty()) return worker;
    }
  }

  static void ExpectStoppingAfterMessages(const NotifySocket& socket) {
    std::string message;
    while ((message = socket.Receive()) != "STOPPING=1") {
      ASSERT_NE(message, "");
    }
  }
};

TEST_F(ServiceTest, TheCoordinatorIsReadyOnceItListensAndFeedsItsWatchdog) {
  const NotifySocket socket(Path("socket"));
  auto coordinator = StartCoordinator();
  EXPECT_EQ(socket.Receive(), "READY=1");
  EXPECT_GT(Port(), 0);
  EXPECT_EQ(socket.Receive(),
            absl::StrCat("STATUS=port ", Port(), ", run WAITING_FOR_ISLANDS"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
  coordinator->Signal(SIGTERM);
  ExpectStoppingAfterMessages(socket);
  EXPECT_EQ(coordinator->Wait(), 0) << coordinator->Output();
}

TEST_F(ServiceTest, AnIslandIsReadyOnceItHasJoinedAndFeedsItsWatchdog) {
  auto coordinator = StartCoordinator();
  const NotifySocket socket(Path("socket"));
  auto worker = StartWorker(socket);
  EXPECT_THAT(worker->Output(), testing::HasSubstr("joined run"));
  ASSERT_TRUE(coordinator->AwaitOutput("fragment 0 is at version 2"));
  for (int i = 0; i < 3;) {
    const std::string message = socket.Receive();
    ASSERT_NE(message, "");
    if (message == "WATCHDOG=1") ++i;
  }
  worker->Signal(SIGTERM);
  ExpectStoppingAfterMessages(socket);
  EXPECT_EQ(worker->Wait(), 0) << worker->Output();
}

TEST_F(ServiceTest, AStepWithoutEndStarvesTheWatchdog) {
  auto coordinator = StartCoordinator();
  const NotifySocket socket(Path("socket"));
  auto worker = StartWorker(socket, {"--simulated_step_seconds=100000"});
  // A fed watchdog would keep this going for ever.
  while (!socket.Receive(absl::Seconds(2)).empty()) {
  }
  EXPECT_TRUE(worker->running());
}

TEST_F(ServiceTest, ASchedulerCanTellAnInterruptedIslandFromADrainedOne) {
  auto coordinator = StartCoordinator();
  const std::vector<std::string> command = WorkerCommand(
      "east", Port(),
      {"--interrupted_exit_code=75",
       absl::StrCat("--preemption_notice_file=", Path("notice"))});
  const auto start = [&](const std::string& log) {
    auto worker = Start(log, command);
    EXPECT_TRUE(worker->AwaitOutput(" tokens/s")) << worker->Output();
    return worker;
  };
  auto signalled = start("signalled");
  EXPECT_EQ(signalled->End(SIGTERM), 75) << signalled->Output();
  auto drained = start("drained");
  RunTool({"drain", "east", "--coordinator", Address()});
  EXPECT_EQ(drained->Wait(), 0) << drained->Output();
  auto noticed = start("noticed");
  Write("notice", "");
  EXPECT_EQ(noticed->Wait(), 75) << noticed->Output();
}

TEST_F(ServiceTest, ProgramsSayTheirVersion) {
  for (const std::string program : {"server/causeway-coordinator",
                                    "worker/causeway-worker", "cli/causeway"}) {
    const auto process = Start("version", {ProgramPath(program), "--version"});
    EXPECT_EQ(process->Wait(), 0);
    const std::string name = program.substr(program.find('/') + 1);
    EXPECT_THAT(process->Output(),
                testing::EndsWith(absl::StrCat(name, " ", kVersion, "\n")));
  }
}

}  // namespace
}  // namespace causeway
