// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Coordinators that follow one another: real processes, real SIGKILL.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/free_port.h"
#include "tests/end_to_end/process_test_fixture.h"
#include "tests/load/joiner.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// The steps of a run that the test ends.
constexpr int kEndless = 1'000'000;

constexpr char kConfig[] = R"pb(
  name: "followers"
  model {
    layers: 2
    hidden_size: $2
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
  training {
    total_steps: $0
    batch_size: 4
    learning_rate: 5e-3
    warmup_steps: 10
  }
  outer_optimizer { momentum: 0.5 }
  synchronization {
    inner_steps_per_round: 10
    fragments: 3
    overlap_steps: 2
    uplink_format: INT4
    downlink_format: INT4
  }
  membership { min_islands: 2 lease_seconds: 5 heartbeat_seconds: 0.2 }
  storage { sync_replicas: $1 }
)pb";

class FollowersTest : public ProcessTestFixture {
 protected:
  // A coordinator or follower, with its address.
  struct Server {
    std::string port() const { return address.substr(address.find(':') + 1); }
    void Kill() const { EXPECT_EQ(process->End(SIGKILL), 128 + SIGKILL); }
    void End() const {
      EXPECT_EQ(process->End(SIGTERM), 0) << process->Output();
    }

    std::unique_ptr<Process> process;
    std::string address;
  };

  Server Coordinator(int steps, int sync_replicas,
                     const std::vector<std::string>& flags = {},
                     int hidden_size = 32) {
    Write("run.textproto",
          absl::Substitute(kConfig, steps, sync_replicas, hidden_size));
    std::vector<std::string> command = CoordinatorCommand(0, "leader");
    command.insert(command.end(), flags.begin(), flags.end());
    Server server{.process = Start("leader", std::move(command))};
    EXPECT_TRUE(server.process->AwaitOutput("waiting for islands"))
        << server.process->Output();
    server.address = absl::StrCat("127.0.0.1:", Port());
    return server;
  }

  // A follower with a region needs a port.
  Server Follower(const std::string& name, const std::string& leader,
                  const std::string& state, const std::string& port = "0",
                  const std::string& region = "") {
    const std::string port_file = Path(absl::StrCat(name, ".port"));
    std::remove(port_file.c_str());
    Server server{.process =
                      Start(name, {ProgramPath("server/causeway-coordinator"),
                                   absl::StrCat("--follow=", leader),
                                   absl::StrCat("--name=", name),
                                   absl::StrCat("--state_dir=", Path(state)),
                                   absl::StrCat("--listen=127.0.0.1:", port),
                                   absl::StrCat("--port_file=", port_file),
                                   absl::StrCat("--region=", region),
                                   "--exit_when_finished"})};
    EXPECT_TRUE(server.process->AwaitOutput("following "))
        << server.process->Output();
    for (int i = 0; FileText(port_file).empty() && i < 300; ++i) {
      absl::SleepFor(absl::Milliseconds(100));
    }
    const int own_port = std::atoi(FileText(port_file).c_str());
    server.address = absl::StrCat("127.0.0.1:", own_port);
    // A former leader's directory has the file already. Await the new listener.
    int connection = -1;
    for (int i = 0; (connection = ConnectToPort(own_port)) < 0 && i < 300;
         ++i) {
      absl::SleepFor(absl::Milliseconds(100));
    }
    close(connection);
    return server;
  }

  std::unique_ptr<Process> Worker(const std::string& island,
                                  const std::string& addresses,
                                  const std::string& region = "") {
    std::vector<std::string> command = WorkerCommand(island, 0);
    command[1] = absl::StrCat("--coordinator=", addresses);
    command.push_back(absl::StrCat("--region=", region));
    return Start(island, std::move(command));
  }

  void StartIslands(const std::string& addresses,
                    const std::string& region = "") {
    east_ = Worker("east", addresses, region);
    west_ = Worker("west", addresses, region);
  }

  void EndIslands() {
    for (Process* const island : {east_.get(), west_.get()}) {
      EXPECT_EQ(island->End(SIGTERM), 0) << island->Output();
    }
  }
  // Ends the islands, and both coordinators once the follower has everything.
  // Returns what the follower says of the run.
  json EndInSync(const Server& leader, const Server& follower,
                 const std::string& copy = "copy") {
    EndIslands();
    AwaitMerged(leader);
    AwaitInSync(leader, 1);
    const json run = Status(follower.address)["run"];
    EXPECT_EQ(run["rounds"], Status(leader.address)["run"]["rounds"]);
    follower.End();
    leader.End();
    EXPECT_EQ(Loss(copy), Loss("leader"));
    return run;
  }
  // Waits until the tokens of islands that have ended are merged, each once.
  void AwaitMerged(const Server& leader) {
    json ledger;
    const auto tokens = [&](const char* part) {
      return std::stoll(ledger.value(part, "0"));
    };
    for (int i = 0; i < 300; ++i) {
      ledger = Status(leader.address)["run"]["ledger"];
      if (tokens("pending") == 0) break;
      absl::SleepFor(absl::Milliseconds(100));
    }
    EXPECT_GT(tokens("merged"), 0);
    EXPECT_EQ(tokens("reported"), tokens("merged") + tokens("partial_merged"))
        << ledger;
  }

  json Status(const std::string& address) {
    return json::parse(RunTool({"status", "--json", "--coordinator", address}));
  }
  // Returns what a coordinator's log says of a round.
  static std::string VersionLine(int fragment, int version) {
    return absl::Substitute("fragment $0 is at version $1:", fragment, version);
  }
  static int VersionOf(const json& status, int fragment) {
    return std::stoi(
        status["fragments"][fragment]["head"]["version"].get<std::string>());
  }
  // Returns the bytes of updates and parameters that a coordinator has sent.
  int64_t SentBy(const Server& server) {
    const json run = Status(server.address)["run"];
    const bool is_copy = run["is_copy"].get<bool>();
    return std::stoll(
        run[is_copy ? "copy_bytes_sent" : "bytes_sent"].get<std::string>());
  }
  void AwaitInSync(const Server& leader, size_t followers) {
    for (int i = 0; i < 300; ++i) {
      const json run = Status(leader.address)["run"];
      size_t in_sync = 0;
      if (run.contains("followers")) {
        for (const json& follower : run["followers"]) {
          in_sync += follower.value("state", "") == "IN_SYNC" ? 1 : 0;
        }
      }
      if (in_sync == followers) return;
      absl::SleepFor(absl::Milliseconds(100));
    }
    FAIL() << leader.process->Output();
  }

  // Flips a bit of the file at `offset`, and every 4096 bytes after it.
  static void FlipBits(const std::string& file, uintmax_t offset) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    for (; offset < std::filesystem::file_size(file); offset += 4096) {
      bytes.seekg(static_cast<std::streamoff>(offset));
      const int byte = bytes.peek();
      bytes.seekp(static_cast<std::streamoff>(offset));
      bytes.put(static_cast<char>(byte ^ 1));
    }
  }
  // Expects that a follower refuses its copy because of `file`.
  void ExpectRefused(const Server& leader, const std::string& file) {
    const auto rotten =
        Start("rotten", {ProgramPath("server/causeway-coordinator"),
                         absl::StrCat("--follow=", leader.address), "--name=f",
                         absl::StrCat("--state_dir=", Path("copy")),
                         "--listen=127.0.0.1:0"});
    EXPECT_NE(rotten->Wait(), 0);
    EXPECT_THAT(rotten->Output(),
                AllOf(HasSubstr(file),
                      HasSubstr("an empty directory makes a new copy")));
  }

  // Asks the coordinator whether it is ready until the answer is `status`.
  static HttpReply AwaitReadiness(int port, int status) {
    HttpReply reply;
    for (int i = 0; reply.status != status && i < 300; ++i) {
      if (i > 0) absl::SleepFor(absl::Milliseconds(100));
      reply = HttpGet(port, "/readyz");
    }
    return reply;
  }

  double Loss(const std::string& state) {
    return json::parse(
        RunTool({"evaluate", Path(state), "--data", kText, "--json"}))["loss"];
  }

  std::unique_ptr<Process> east_;
  std::unique_ptr<Process> west_;
};

TEST_F(FollowersTest, TheCopyIsTheRun) {
  Server leader = Coordinator(/*steps=*/300, /*sync_replicas=*/1);
  const Server follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  StartIslands(leader.address);
  ExpectOk(*east_, *west_, *leader.process);
  // The follower has the last change, because versions wait for it, and serves
  // its copy while it is alone.
  const json run = Status(follower.address)["run"];
  EXPECT_EQ(run["follows"], leader.address);
  EXPECT_EQ(run["rounds"], run["total_rounds"]);
  follower.End();
  EXPECT_EQ(Loss("copy"), Loss("leader"));
}

TEST_F(FollowersTest, AFollowerTakesOverAndTheOldLeaderFollows) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1);
  Server follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  const std::string both = absl::StrCat(leader.address, ",", follower.address);
  StartIslands(both);
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, 20)));
  EXPECT_THAT(RunTool({"promote", "--coordinator", follower.address}, 1),
              AllOf(HasSubstr("is alive"), HasSubstr("--force")));

  leader.Kill();
  const json before = Status(follower.address);
  // The connection breaks at once.
  ASSERT_TRUE(follower.process->AwaitOutput("not following"));
  EXPECT_THAT(RunTool({"promote", "--coordinator", follower.address}),
              HasSubstr("epoch 2"));
  ASSERT_TRUE(follower.process->AwaitOutput("waiting for islands"))
      << follower.process->Output();
  ASSERT_TRUE(
      follower.process->AwaitOutput(VersionLine(0, VersionOf(before, 0) + 10)))
      << follower.process->Output() << east_->Output();

  // The previous coordinator comes back unchanged, and stands down.
  const int metrics = FreePort();
  std::vector<std::string> command =
      CoordinatorCommand(std::stoi(leader.port()), "leader");
  command.push_back(absl::StrCat("--metrics_listen=127.0.0.1:", metrics));
  auto back = Start("back", std::move(command));
  EXPECT_TRUE(back->AwaitOutput("was replaced")) << back->Output();
  EXPECT_EQ(AwaitReadiness(metrics, 503).status, 503);
  back->End(SIGTERM);
  // Now it follows, in the directory that it has.
  Server second = Follower("second", follower.address, "leader");
  AwaitInSync(follower, 1);

  EXPECT_EQ(EndInSync(follower, second)["epoch"], "2");
}

TEST_F(FollowersTest, TwoCoordinatorsTakeTurns) {
  const Server first = Coordinator(kEndless, /*sync_replicas=*/1);
  const Server b = Follower("b", first.address, "copy");
  AwaitInSync(first, 1);
  first.Kill();
  ASSERT_TRUE(b.process->AwaitOutput("not following"));
  RunTool({"promote", "--coordinator", b.address});
  ASSERT_TRUE(b.process->AwaitOutput("waiting for islands"));
  const Server a = Follower("a", b.address, "leader", first.port());
  AwaitInSync(b, 1);
  b.Kill();
  ASSERT_TRUE(a.process->AwaitOutput("not following"));
  RunTool({"promote", "--coordinator", a.address});
  ASSERT_TRUE(a.process->AwaitOutput("waiting for islands"));

  // The directory that has taken over before follows now.
  const Server again = Follower("b2", a.address, "copy", b.port());
  AwaitInSync(a, 1);
  // It is promoted beside its leader, which follows without a new start.
  RunTool({"promote", "--force", "--coordinator", again.address});
  ASSERT_TRUE(again.process->AwaitOutput(", epoch 4"));
  AwaitInSync(again, 1);
  EXPECT_EQ(Status(a.address)["run"]["follows"], again.address);
  again.End();
  a.End();
}

// The follower is away while the coordinator continues; then the coordinator is
// lost.
TEST_F(FollowersTest, IslandsGoBackToWhatTheFollowerHas) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/0);
  Server follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  const std::string both = absl::StrCat(leader.address, ",", follower.address);
  StartIslands(both);
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(2, 20)));
  follower.Kill();
  const int lost = VersionOf(Status(leader.address), 2) + 40;
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(2, lost)));
  leader.Kill();
  follower = Follower("f", leader.address, "copy", follower.port());
  EXPECT_LT(VersionOf(Status(follower.address), 2), lost)
      << "the test has lost nothing";
  RunTool({"promote", "--coordinator", follower.address});
  ASSERT_TRUE(follower.process->AwaitOutput(VersionLine(2, lost + 100)))
      << follower.process->Output() << east_->Output();
  EndIslands();
  follower.End();
  EXPECT_LT(Loss("copy"), 3.2);
}

TEST_F(FollowersTest, NoRoundWaitsForAKilledFollowerThatComesBack) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1);
  StartIslands(leader.address);
  for (int kills = 0; kills < 4; ++kills) {
    Server follower = Follower("f", leader.address, "copy");
    // The first is killed while its copy is made.
    if (kills > 0) AwaitInSync(leader, 1);
    follower.Kill();
    ASSERT_TRUE(leader.process->AwaitOutput("follower f has disconnected"));
  }
  Server follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  // It also continues with a coordinator that was killed and is back.
  leader.Kill();
  leader.process = Start(
      "leader-back", CoordinatorCommand(std::stoi(leader.port()), "leader"));
  ASSERT_TRUE(leader.process->AwaitOutput("waiting for islands"));
  AwaitInSync(leader, 1);
  EndInSync(leader, follower);
}

TEST_F(FollowersTest, NobodyWaitsForAFollowerWhoseDiskIsFull) {
  const std::string refused = MountSmallDisk();
  if (!refused.empty()) GTEST_SKIP() << refused;
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1);
  const Server follower = Follower("f", leader.address, "disk/copy");
  AwaitInSync(leader, 1);
  StartIslands(leader.address);
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, 3)));
  FillSmallDisk();
  ASSERT_TRUE(follower.process->AwaitOutput("not following"));
  EXPECT_THAT(follower.process->Output(),
              ContainsRegex("No space left|disk is full"));
  const int version = VersionOf(Status(leader.address), 0);
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, version + 3)));
  std::filesystem::remove(Path("disk/filler"));
  AwaitInSync(leader, 1);
  EndInSync(leader, follower, "disk/copy");
}

// A follower has its values in memory, so a copy that rots is found when it is
// opened. It is made again in an empty directory.
TEST_F(FollowersTest, ACopyThatHasRottedIsRefused) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1);
  StartIslands(leader.address);
  Server follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  for (const auto& file :
       std::filesystem::directory_iterator(Path("copy/fragments"))) {
    FlipBits(file.path(), std::filesystem::file_size(file) - 5);
  }
  const int version = VersionOf(Status(leader.address), 0);
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, version + 3)));
  AwaitInSync(leader, 1);
  follower.Kill();
  ExpectRefused(leader, "copy/fragments/");

  std::filesystem::remove_all(Path("copy"));
  follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  follower.End();
  // The schema, on the first page, stays as it is.
  FlipBits(Path("copy/run.sqlite3"), 4096);
  ExpectRefused(leader, "copy/run.sqlite3");

  std::filesystem::remove_all(Path("copy"));
  follower = Follower("f", leader.address, "copy");
  AwaitInSync(leader, 1);
  EndIslands();
}

// The leader is in region a, and islands of region b have a follower there.
TEST_F(FollowersTest, IslandsOfARegionFetchFromItsFollower) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1, {"--region=a"});
  const Server follower =
      Follower("f", leader.address, "copy", absl::StrCat(FreePort()), "b");
  AwaitInSync(leader, 1);
  StartIslands(leader.address, "b");
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(2, 20)));
  const int64_t by_leader = SentBy(leader);
  EXPECT_GT(SentBy(follower), 100'000);
  EXPECT_LT(by_leader, 10'000) << east_->Output();
  EndIslands();
}

TEST_F(FollowersTest, IslandsGoOnWithoutTheirFollowerAndComeBackToIt) {
  Server leader = Coordinator(kEndless, /*sync_replicas=*/0, {"--region=a"});
  const std::string port = absl::StrCat(FreePort());
  Server follower = Follower("f", leader.address, "copy", port, "b");
  AwaitInSync(leader, 1);
  StartIslands(leader.address, "b");
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, 20)));
  EXPECT_GT(SentBy(follower), 0);
  const int64_t before = SentBy(leader);
  // It hangs, and islands stop using it.
  follower.process->Signal(SIGSTOP);
  ASSERT_TRUE(east_->AwaitOutput("fetching from the coordinator for 5s"))
      << east_->Output();
  EXPECT_GT(SentBy(leader), before);
  follower.Kill();
  ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, 60)));

  follower = Follower("f", leader.address, "copy", port, "b");
  for (int i = 0; SentBy(follower) == 0 && i < 300; ++i) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_GT(SentBy(follower), 0) << east_->Output();
  EndIslands();
  AwaitMerged(leader);
  leader.End();
}

// The test's output has the figures. To measure, set JOINER_ROUNDS (of each of
// three measurements) in the environment; docs/followers.md has the command.
TEST_F(FollowersTest, JoinersAtAFollowerCostTheLeaderNothing) {
  int rounds = 6;
  if (const char* text = std::getenv("JOINER_ROUNDS"); text != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &rounds)) << text;
  }
  Server leader = Coordinator(kEndless, /*sync_replicas=*/1, {"--region=a"},
                              /*hidden_size=*/256);
  const Server follower =
      Follower("f", leader.address, "copy", absl::StrCat(FreePort()), "b");
  AwaitInSync(leader, 1);
  std::vector<std::unique_ptr<Process>> islands;
  for (const char* name : {"east", "west"}) {
    std::vector<std::string> command = WorkerCommand(name, Port());
    command.push_back("--simulated_step_seconds=0.05");
    islands.push_back(Start(name, std::move(command)));
  }
  int version = 5;
  const auto await_version = [&] {
    ASSERT_TRUE(leader.process->AwaitOutput(VersionLine(0, version)))
        << leader.process->Output();
  };
  await_version();
  // Returns the bytes that the leader sends in `rounds` rounds while ten
  // joiners, one after the other, download all parameters from their region,
  // and the joiners' bytes.
  const auto measure = [&](const std::string& name,
                           std::optional<std::string> region) {
    const int64_t before = SentBy(leader);
    std::atomic<bool> over = false;
    std::atomic<uint64_t> received = 0;
    std::vector<std::thread> joiners;
    for (int i = 0; region.has_value() && i < 10; ++i) {
      joiners.emplace_back([&, i] {
        for (uint64_t again = 0; !over;) {
          const absl::StatusOr<uint64_t> got =
              JoinAndLeave({.address = leader.address,
                            .name = absl::StrCat("joiner-", i),
                            .instance_id = again * 10 + i + 1,
                            .limit = 2e6,
                            .region = *region});
          // A joiner whose version is gone joins again.
          if (!got.ok()) continue;
          received += *got;
          ++again;
        }
      });
    }
    const absl::Time began = absl::Now();
    version += rounds;
    await_version();
    const absl::Duration took = absl::Now() - began;
    over = true;
    for (std::thread& joiner : joiners) joiner.join();
    const int64_t sent = SentBy(leader) - before;
    std::cout << name << ": a round takes " << took / rounds
              << "; the leader has sent " << sent << " bytes, joiners have got "
              << received << "\n";
    return std::pair<int64_t, int64_t>(sent, received);
  };
  const int64_t alone = measure("no joiners", std::nullopt).first;
  const auto [near, received_near] = measure("joiners at the follower", "b");
  const auto [far, received_far] = measure("joiners at the leader", "");
  EXPECT_GT(received_near, 10'000'000);
  EXPECT_LT(near - alone, received_near / 10);
  EXPECT_GT(received_far, 10'000'000);
  EXPECT_GT(far - alone, received_far / 2);
  for (const std::unique_ptr<Process>& island : islands) {
    EXPECT_EQ(island->End(SIGTERM), 0) << island->Output();
  }
}

}  // namespace
}  // namespace causeway
