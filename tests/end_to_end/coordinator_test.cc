// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the flags and the exit codes of the coordinator's program.
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/process.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

class CoordinatorProgramTest : public ProcessTestFixture {
 protected:
  void SetUp() override { WriteRunOf(20); }
  void WriteRunOf(int total_steps, absl::string_view name = "test") {
    WriteRun(absl::StrCat(
        "name: '", name, "' training { batch_size: 1 total_steps: ",
        total_steps, " } synchronization { inner_steps_per_round: 10 }"));
  }
};

TEST_F(CoordinatorProgramTest, ServesWithTheLimitsOfItsFlags) {
  auto coordinator = StartServing(
      "coordinator", CoordinatorCommand(0, "state", {"--max_connections=33"}));
  EXPECT_THAT(RunTool({"status", "--coordinator", Address(), "--json"}),
              HasSubstr("\"limit\":33,"));
  EXPECT_EQ(coordinator->End(SIGTERM), 0);
  EXPECT_THAT(coordinator->Output(), HasSubstr("signal received"));
}

TEST_F(CoordinatorProgramTest, BadTlsFilesLeaveNoStateBehind) {
  auto coordinator =
      Start("coordinator",
            CoordinatorCommand(0, "state",
                               {absl::StrCat("--tls_cert=", Path("none.crt")),
                                absl::StrCat("--tls_key=", Path("none.key"))}));
  EXPECT_EQ(coordinator->Wait(), 1);
  EXPECT_THAT(coordinator->Output(), HasSubstr("none.crt\" (--tls_cert)"));
  EXPECT_NE(access(Path("state").c_str(), F_OK), 0);
}

TEST_F(CoordinatorProgramTest, RefusesToGuess) {
  const std::string program = ProgramPath("server/causeway-coordinator");
  auto without_config =
      Start("config", {program, absl::StrCat("--state_dir=", Path("state"))});
  EXPECT_EQ(without_config->Wait(), 2);
  EXPECT_THAT(without_config->Output(),
              HasSubstr("--config and --state_dir are needed"));
  auto without_state = Start(
      "state", {program, absl::StrCat("--config=", Path("run.textproto"))});
  EXPECT_EQ(without_state->Wait(), 2);
  auto stray = Start("stray", CoordinatorCommand(0, "state", {"state"}));
  EXPECT_EQ(stray->Wait(), 2);
  EXPECT_THAT(stray->Output(), HasSubstr("unknown argument \"state\""));
}

TEST_F(CoordinatorProgramTest, RefusesValuesThatMeanNothing) {
  for (const std::string flag :
       {"--follow=a.example", "--merge_threads=-1", "--max_connections=-1",
        "--drain_slow_after=0", "--listen=127.0.0.1",
        "--http_listen=127.0.0.1:", "--metrics_listen=:http",
        "--certificate_life=inf"}) {
    auto coordinator =
        Start("refused", CoordinatorCommand(0, "state", {"--tls=auto", flag}));
    EXPECT_EQ(coordinator->Wait(), 2) << flag;
    EXPECT_THAT(coordinator->Output(),
                HasSubstr(flag.substr(0, flag.find('='))));
  }
  auto unitless =
      Start("unitless", CoordinatorCommand(0, "state", {"--etcd_lease=5"}));
  EXPECT_NE(unitless->Wait(), 0);
  EXPECT_THAT(unitless->Output(), HasSubstr("a number and its unit"));
  auto coordinator = Start(
      "refused", CoordinatorCommand(
                     0, "state", {"--follow=127.0.0.1:7070", "--name=Node_B"}));
  EXPECT_EQ(coordinator->Wait(), 2);
  EXPECT_THAT(coordinator->Output(), HasSubstr("--name is \"Node_B\""));
  EXPECT_NE(access(Path("state").c_str(), F_OK), 0);
}

// Otherwise an elected coordinator may lead the run at the same time.
TEST_F(CoordinatorProgramTest, ElectedLeadersMustBeElectedOrPromotedAgain) {
  int starts = 0;
  // Logs are appended to.
  const auto start = [&](const std::vector<std::string>& command) {
    auto coordinator =
        StartServing(absl::StrCat("coordinator-", ++starts), command);
    EXPECT_EQ(coordinator->End(SIGTERM), 0);
  };
  const std::vector<std::string> alone = CoordinatorCommand(0);
  start(alone);
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<StateDirectory> state,
                         StateDirectory::Open(Path("state"), {}));
    ASSERT_OK(state->log().TakeOver(5));
  }
  auto refused = Start("refused", alone);
  EXPECT_EQ(refused->Wait(), 2);
  EXPECT_THAT(refused->Output(), HasSubstr("was elected to lead run test-"));
  EXPECT_THAT(refused->Output(), HasSubstr("start with --etcd, or,"));
  // A promoted coordinator leads with the configuration that it is given, or
  // else with the last one. The second start finds a directory that leads.
  const auto promoted = [&](const std::string& config) {
    return CoordinatorCommand(
        0, "state",
        {"--promote",
         absl::StrCat("--config=", config.empty() ? "" : Path(config))});
  };
  WriteRunOf(20, "other");
  auto other = Start("other", promoted("run.textproto"));
  EXPECT_EQ(other->Wait(), 2);
  EXPECT_THAT(other->Output(), HasSubstr("Nothing was changed"));
  WriteRunOf(40);
  for (const std::string config : {"run.textproto", ""}) {
    start(promoted(config));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<StateDirectory> state,
                         StateDirectory::Open(Path("state"), {}));
    EXPECT_EQ(state->log().LoadRun()->epoch, 6);
    EXPECT_EQ(state->log().LoadLeader()->config.training().total_steps(), 40);
  }
  // A state from a backup needs a higher epoch, and once only.
  for (int i = 0; i < 2; ++i) {
    start(CoordinatorCommand(0, "state", {"--promote", "--above_epoch=8"}));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<StateDirectory> state,
                         StateDirectory::Open(Path("state"), {}));
    EXPECT_EQ(state->log().LoadRun()->epoch, 9);
  }
  start(alone);
}

}  // namespace
}  // namespace causeway
