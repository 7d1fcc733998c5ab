// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the daemons and `causeway` with several addresses, when another
// coordinator takes the run over.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/storage/sqlite.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

// Islands must not lose their leases while the other coordinator starts.
constexpr char kConfig[] = R"pb(
  name: "addresses"
  training { total_steps: 1000000 batch_size: 1 learning_rate: 1e-3 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 1 lease_seconds: 60 }
)pb";

class SeveralAddressesTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    follower_.SetServing("causeway.v1.Coordinator", false);
    WriteRun(kConfig);
    coordinator_ = StartServing("coordinator", CoordinatorCommand(0));
    first_port_ = Port();
    // The order does not matter.
    addresses_ = absl::StrCat(follower_.address(), ",", Address());
    worker_ = Start("east", WorkerCommand("east", 0,
                                          {"--coordinator=" + addresses_,
                                           "--bulk_connections=2"}));
    ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 2"))
        << worker_->Output();
  }

  // Kills the coordinator, and lets another one, of epoch 5, continue with a
  // copy of its state.
  void Replace() {
    coordinator_->End(SIGKILL);
    EXPECT_THAT(Status(/*exit_code=*/1),
                HasSubstr("no coordinator that leads the run answers at"));
    StartOther();
  }
  void StartOther() {
    std::filesystem::copy(Path("state"), Path("copy"),
                          std::filesystem::copy_options::recursive);
    {
      ASSERT_OK_AND_ASSIGN(
          SqliteDatabase log,
          SqliteDatabase::Open(Path("copy/run.sqlite3"),
                               SqliteDatabase::Mode::kReadWriteCreate));
      ASSERT_OK(log.Execute("UPDATE log SET epoch = 5"));
    }
    follower_.Kill();
    promoted_ =
        StartServing("promoted", CoordinatorCommand(follower_.port(), "copy"));
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(promoted_->AwaitOutput("is at version ")) << worker_->Output();
    RecordProperty("milliseconds",
                   absl::ToInt64Milliseconds(absl::Now() - begin));
  }

  std::string Status(int exit_code = 0) {
    return RunTool({"status", "--coordinator", addresses_, "--json"},
                   exit_code);
  }

  // This server stands at a follower's address until that is promoted.
  LocalGrpcServer follower_{{.has_health = true}};
  std::unique_ptr<Process> coordinator_;
  int first_port_ = 0;
  std::string addresses_;
  std::unique_ptr<Process> worker_;
  std::unique_ptr<Process> promoted_;
};

TEST_F(SeveralAddressesTest, IslandsAndToolsGoOverToTheOtherCoordinator) {
  EXPECT_EQ(nlohmann::json::parse(Status())["run"]["state"], "RUNNING");
  Replace();
  const nlohmann::json status = nlohmann::json::parse(Status());
  EXPECT_EQ(status["run"]["state"], "RUNNING");
  // The island has not joined again: its membership continues.
  EXPECT_EQ(status["islands"][0]["incarnation"], "1") << worker_->Output();
  // Its link figures are from the new connections.
  const auto round_trip = [&] {
    return nlohmann::json::parse(Status())["islands"][0]["progress"].value(
        "round_trip_seconds", 0.0);
  };
  EXPECT_TRUE(Await([&] { return round_trip() > 0; }, absl::Seconds(20)));
  EXPECT_EQ(worker_->End(SIGTERM), 0) << worker_->Output();
  EXPECT_THAT(promoted_->Output(),
              HasSubstr("island east (incarnation 1) left"));
}

TEST_F(SeveralAddressesTest, ACoordinatorThatComesBackIsStopped) {
  Replace();
  // It does not know that it was replaced.
  coordinator_ = Start("back", CoordinatorCommand(first_port_));
  ASSERT_TRUE(coordinator_->AwaitOutput(
      "was replaced by one of epoch 5, which has the run now (island east"))
      << coordinator_->Output();
  EXPECT_THAT(coordinator_->Output(), Not(HasSubstr("is at version")));
  // The island continues with the other.
  const auto rounds = [&] {
    const nlohmann::json run = nlohmann::json::parse(Status())["run"];
    EXPECT_EQ(run["epoch"], "5");
    return std::stoi(run["rounds"].get<std::string>());
  };
  const int before = rounds();
  EXPECT_TRUE(Await([&] { return rounds() > before; }, absl::Seconds(20)))
      << worker_->Output();
  // Once the other is lost, this one's state is all there is, as a backup is.
  promoted_->End(SIGKILL);
  coordinator_->End(SIGKILL);
  coordinator_ = StartServing(
      "restored", CoordinatorCommand(first_port_, "state",
                                     {"--promote", "--above_epoch=5"}));
  EXPECT_TRUE(coordinator_->AwaitOutput("is at version ")) << worker_->Output();
  EXPECT_TRUE(worker_->running());
}

// Its connections seem alive.
TEST_F(SeveralAddressesTest, IslandsLeaveACoordinatorThatHangs) {
  coordinator_->Signal(SIGSTOP);
  StartOther();
  EXPECT_THAT(worker_->Output(),
              HasSubstr("leads the run now; leaving the previous one"));
  coordinator_->Signal(SIGCONT);
  ASSERT_TRUE(coordinator_->AwaitOutput("was replaced by one of epoch 5"))
      << coordinator_->Output();
  EXPECT_TRUE(worker_->running());
}

TEST_F(SeveralAddressesTest, WrongListsAreUsageErrors) {
  auto worker = Start(
      "west", WorkerCommand("west", 0,
                            {"--coordinator=127.0.0.1:7070,127.0.0.1:7070"}));
  EXPECT_EQ(worker->Wait(), 2);
  EXPECT_THAT(worker->Output(), HasSubstr("127.0.0.1:7070 twice"));
  EXPECT_THAT(RunTool({"enrol", "--coordinator", "a:1,", "--join", "x", "--tls",
                       Path("tls")},
                      /*exit_code=*/2),
              HasSubstr("is not host:port"));
}

}  // namespace
}  // namespace causeway
