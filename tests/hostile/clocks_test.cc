// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Coordinator and islands whose wall clocks are wrong, differ, and are put
// forward and back during a run.
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::ContainsRegex;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int64_t kHour = 3600;
constexpr int64_t kTenYears = 10 * 365 * 24 * kHour;

// A run that does not end by itself.
constexpr char kConfig[] = R"pb(
  name: "clocks"
  training { total_steps: 100000000 batch_size: 1 }
  synchronization { inner_steps_per_round: 20 }
  membership {
    min_islands: 1
    quorum: 1
    lease_seconds: 5
    heartbeat_seconds: 0.5
    grace_seconds: 0.5
  }
)pb";

class ClocksTest : public ProcessTestFixture {
 protected:
  void SetUp() override { WriteRun(kConfig); }

  // Sets how far the wall clock of the process `name` is ahead, in seconds.
  void SetClock(const std::string& name, int64_t ahead) const {
    const std::string path = Path(name + ".offset");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    if (!file.is_open()) file.open(path, std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&ahead), sizeof(ahead));
  }
  static int64_t Since1970() { return absl::ToUnixSeconds(absl::Now()); }

  // Starts `command` with a wall clock of its own.
  std::unique_ptr<Process> StartWithClock(const std::string& name,
                                          std::vector<std::string> command,
                                          int64_t ahead = 0) const {
    SetClock(name, ahead);
    command.insert(
        command.begin(),
        {"/usr/bin/env",
         absl::StrCat("LD_PRELOAD=",
                      ProgramPath("tests/hostile/wall_clock.so")),
         "ASAN_OPTIONS=verify_asan_link_order=0",
         absl::StrCat("WALL_CLOCK_OFFSET=", Path(name + ".offset"))});
    return Start(name, std::move(command));
  }
  std::unique_ptr<Process> Coordinator(
      const std::vector<std::string>& flags = {}, int64_t ahead = 0) const {
    std::filesystem::remove(Path("port"));
    auto coordinator = StartWithClock(
        "coordinator", CoordinatorCommand(0, "state", flags), ahead);
    EXPECT_TRUE(Await([&] { return Port() != 0; })) << coordinator->Output();
    return coordinator;
  }
  std::unique_ptr<Process> Island(const std::string& name,
                                  int64_t ahead = 0) const {
    // A round takes a second, at least.
    return StartWithClock(
        name, WorkerCommand(name, Port(), {"--simulated_step_seconds=0.05"}),
        ahead);
  }

  json Status() const {
    return json::parse(
        RunTool({"status", "--json", "--all", "--coordinator", Address()}));
  }
  // Waits until `holds` is true of the status.
  template <typename Condition>
  bool AwaitStatus(const Condition& holds) const {
    return Await([&] { return holds(Status()); }, kPatience,
                 absl::Milliseconds(200));
  }
  // Waits for more rounds, each of which takes a second.
  bool AwaitRounds(uint64_t more) const {
    const uint64_t rounds = RoundsOf(Status());
    return AwaitStatus(
        [&](const json& status) { return RoundsOf(status) >= rounds + more; });
  }
  static uint64_t RoundsOf(const json& status) {
    uint64_t rounds = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(status["run"]["rounds"].get<std::string>(), &rounds));
    return rounds;
  }
  static json IslandOf(const json& status, const std::string& name) {
    for (const json& island : status["islands"]) {
      if (island["island_id"] == name) return island;
    }
    return json();
  }
};

TEST_F(ClocksTest, LeasesHoldAndEndWhateverTheWallClocksSay) {
  // The clocks differ from the start.
  const auto coordinator = Coordinator({}, kHour);
  const auto north = Island("north", -5 * kHour);
  auto south = Island("south");
  ASSERT_TRUE(AwaitRounds(2)) << coordinator->Output();
  for (const int64_t ahead : {-kHour, kHour, kTenYears, -Since1970()}) {
    SCOPED_TRACE(ahead);
    for (const char* name : {"coordinator", "north", "south"}) {
      SetClock(name, ahead);
    }
    // These rounds take longer than a lease.
    ASSERT_TRUE(AwaitRounds(7)) << coordinator->Output();
    const json status = Status();
    for (const char* name : {"north", "south"}) {
      EXPECT_EQ(IslandOf(status, name)["state"], "LIVE") << status;
      EXPECT_LT(IslandOf(status, name)["heartbeat_age_seconds"].get<double>(),
                5);
    }
    EXPECT_EQ(IslandOf(status, "north")["incarnation"], "1") << status;
    // The lease of an island that is gone ends.
    south->End(SIGKILL);
    EXPECT_TRUE(AwaitStatus([&](const json& now) {
      return IslandOf(now, "south")["state"] == "EVICTED";
    })) << coordinator->Output();
    south = Island("south", ahead);
    ASSERT_TRUE(AwaitStatus([&](const json& now) {
      return IslandOf(now, "south")["state"] == "LIVE";
    })) << south->Output();
  }
  // gRPC's deadlines end, too: islands leave without an answer.
  coordinator->Signal(SIGSTOP);
  north->Signal(SIGTERM);
  south->Signal(SIGTERM);
  EXPECT_NE(north->Wait(kPatience), -1) << north->Output();
  EXPECT_NE(south->Wait(kPatience), -1) << south->Output();
}

// A machine may have lost the time, and get it from the network later.
TEST_F(ClocksTest, CertificatesAreRightOnceTheClockIs) {
  const std::vector<std::string> tls = {"--tls=auto"};
  Coordinator(tls)->End(SIGTERM);
  // An authority ends after ten years.
  for (const int64_t ahead : {-Since1970(), kTenYears / 2}) {
    SCOPED_TRACE(ahead);
    const auto coordinator = Coordinator(tls, ahead);
    SetClock("coordinator", 0);
    const std::string address = Address();
    const std::string folder = absl::StrCat(Path("state"), "/tls/operator");
    const absl::Time end = absl::Now() + kPatience;
    std::unique_ptr<Process> tool;
    do {
      absl::SleepFor(absl::Milliseconds(200));
      std::filesystem::remove(Path("token.log"));
      tool = Start("token",
                   {ProgramPath("cli/causeway"), "token", "create", "--island",
                    "north", "--tls", folder, "--coordinator", address});
    } while (tool->Wait() != 0 && absl::Now() < end);
    ASSERT_EQ(tool->Wait(), 0) << tool->Output() << coordinator->Output();
    const std::string output = tool->Output();
    const std::string name = absl::StrCat("north", ahead);
    const auto north =
        Start(name, {ProgramPath("worker/causeway-worker"), "--coordinator",
                     address, "--tls", Path(name + "-tls"), "--join",
                     std::string(absl::StripSuffix(
                         output.substr(output.rfind("causeway1.")), "\n")),
                     absl::StrCat("--data=", kText), "--threads=1"});
    EXPECT_TRUE(north->AwaitOutput("joined run"))
        << north->Output() << coordinator->Output();
    EXPECT_THAT(RunTool({"status", "--coordinator", address, "--tls", folder}),
                ContainsRegex("coordinator up [0-9.]+ (s|min)"));
    north->End(SIGTERM);
    coordinator->End(SIGTERM);
  }
}

}  // namespace
}  // namespace causeway
