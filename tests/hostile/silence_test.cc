// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Connections and processes that fall silent without a word.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process_test_fixture.h"
#include "tests/takeover/relay.h"

namespace causeway {
namespace {

using nlohmann::json;

constexpr absl::Duration kPatience = absl::Seconds(90);

// A run that does not end by itself.
constexpr char kConfig[] = R"pb(
  name: "silence"
  training { total_steps: 100000000 batch_size: 1 }
  synchronization { inner_steps_per_round: 20 }
  membership {
    min_islands: 1
    quorum: 1
    lease_seconds: 4
    heartbeat_seconds: 0.5
  }
)pb";

class SilenceTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    WriteRun(kConfig);
    coordinator_ = Start("coordinator", CoordinatorCommand(0));
    ASSERT_TRUE(coordinator_->AwaitOutput("waiting for islands"))
        << coordinator_->Output();
  }

  static std::string AddressOf(int port) {
    return absl::StrCat("--coordinator=127.0.0.1:", port);
  }

  std::unique_ptr<Process> coordinator_;
};

TEST_F(SilenceTest, EventsAreFollowedAfterTheirConnectionIsForgotten) {
  Relay relay(Port());
  const auto events = Start("events", {ProgramPath("cli/causeway"), "events",
                                       "--follow", AddressOf(relay.port())});
  ASSERT_TRUE(events->AwaitOutput("coordinator_started")) << events->Output();
  relay.Forget();
  RunTool({"pause", AddressOf(Port())});
  EXPECT_TRUE(events->AwaitOutput("run_paused", kPatience)) << events->Output();
}

TEST_F(SilenceTest, AStoppedCoordinatorEvictsNobodyWhenItGoesOn) {
  std::vector<std::string> command = WorkerCommand("north", Port());
  command.push_back("--simulated_step_seconds=0.02");
  const auto north = Start("north", command);
  ASSERT_TRUE(north->AwaitOutput("step 2/")) << north->Output();
  coordinator_->Signal(SIGSTOP);
  // It is longer than a lease.
  absl::SleepFor(absl::Seconds(6));
  EXPECT_TRUE(north->AwaitOutput("has not answered for half of the lease"))
      << north->Output();
  coordinator_->Signal(SIGCONT);
  ASSERT_TRUE(coordinator_->AwaitOutput("leases were not checked for"))
      << coordinator_->Output();
  // It evicts islands that are gone, nevertheless.
  north->End(SIGKILL);
  ASSERT_TRUE(coordinator_->AwaitOutput("was evicted")) << north->Output();
  const json status =
      json::parse(RunTool({"status", "--json", "--all", AddressOf(Port())}));
  ASSERT_EQ(status["islands"].size(), 1) << status;
  EXPECT_EQ(status["islands"][0]["incarnation"], "1") << status;
}

}  // namespace
}  // namespace causeway
