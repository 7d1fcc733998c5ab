// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Islands whose number of processes changes. Each process has a supervisor of
// its own, which represents a host.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// One, two or three ranks can share the batch.
constexpr char kSettings[] = R"pb(
  name: "elastic"
  training {
    total_steps: 1000000
    batch_size: 12
    micro_batch_size: 2
    learning_rate: 1e-3
  }
  synchronization { inner_steps_per_round: 20 overlap_steps: 2 }
)pb";

// Returns the numbers that follow `word` in a log.
std::vector<int> NumbersAfter(absl::string_view word, absl::string_view log) {
  std::vector<int> numbers;
  const std::vector<absl::string_view> parts = absl::StrSplit(log, word);
  for (size_t i = 1; i < parts.size(); ++i) {
    numbers.push_back(std::atoi(std::string(parts[i].substr(0, 12)).c_str()));
  }
  return numbers;
}

class ElasticTest : public ProcessTestFixture {
 protected:
  // Returns what the process has printed from byte `begin` on, once there is
  // `text` and then a step. Empty if that takes too long.
  static std::string AwaitStepAfter(absl::string_view text,
                                    const Process& process, size_t begin = 0) {
    std::string output;
    const bool found = Await([&] {
      output = process.Output().substr(begin);
      const size_t at = output.find(std::string(text));
      return at != std::string::npos &&
             output.find("] step ", at) != std::string::npos;
    });
    EXPECT_TRUE(found) << "no step after \"" << text << "\":\n"
                       << process.Output();
    return found ? output : "";
  }

  void StartCoordinator(absl::string_view more = "",
                        const std::vector<std::string>& flags = {}) {
    WriteRun(absl::StrCat(kSettings, more));
    coordinator_ =
        StartServing("coordinator", CoordinatorCommand(0, "state", flags));
  }

  // Starts the supervisor of a process.
  std::unique_ptr<Process> StartHost(
      int process, const std::vector<std::string>& flags) const {
    std::vector<std::string> command = WorkerCommand(
        "crew", Port(),
        {"--supervise=1", "--on_rank_fault=act", "--rank_host=127.0.0.1",
         "--simulated_step_seconds=0.01",
         absl::StrCat("--island_leader=127.0.0.2:", Port()),
         absl::StrCat("--island_rank=", process),
         absl::StrCat("--checkpoint_dir=", Path("saved"), process),
         "--checkpoint_steps=10"});
    command.insert(command.end(), flags.begin(), flags.end());
    return Start(absl::StrCat("host", process), std::move(command));
  }

  std::unique_ptr<Process> coordinator_;
};

// Addresses of this host represent the hosts of an island whose processes 0 and
// 1 may lead, and directories represent the hosts' memory. Each host keeps a
// copy of the other's checkpoint. With the parameter each has its own token and
// certificate.
class SuccessionTest : public ElasticTest,
                       public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    std::vector<std::string> flags;
    if (GetParam()) flags = {"--tls=auto", "--certificate_life=20s"};
    // Steps are so short that a copy may be many rounds old.
    StartCoordinator(
        "membership { lease_seconds: 5 heartbeat_seconds: 0.3 }\n"
        "storage { update_history: 1000 }\n",
        flags);
    for (int process = 0; GetParam() && process < 2; ++process) {
      const std::string output = Operate({"token", "create", "--island=crew"});
      tokens_[process] = std::string(absl::StripAsciiWhitespace(
          output.substr(output.rfind("causeway1."))));
    }
    for (int process = 0; process < 3; ++process) StartAgain(process);
    ASSERT_NE(AwaitStepAfter("trains on 3 of 3 processes: 0, 1, 2", *hosts_[0]),
              "");
  }

  std::string Memory(int process) const {
    return Path(absl::StrCat("memory", process));
  }
  void StartAgain(int process) {
    std::vector<std::string> flags = {
        "--island_size=3", "--min_island_size=2", "--shrink_after=0.5",
        absl::StrCat("--island_leader=127.0.0.2:", Port(),
                     ",127.0.0.3:", Port())};
    if (process < 2) {
      flags.insert(flags.end(),
                   {absl::StrCat("--recent_checkpoint_dir=", Memory(process)),
                    absl::StrCat("--keep_checkpoint_copy=", CopyAt(process)),
                    absl::StrCat("--copy_checkpoint_to=", CopyAt(1 - process)),
                    "--copy_mbit_s=0"});
      if (GetParam()) {
        flags.insert(flags.end(), {absl::StrCat("--tls=", Path("tls"), process),
                                   absl::StrCat("--join=", tokens_[process])});
      }
    }
    hosts_[process] = StartHost(process, flags);
  }
  std::string CopyAt(int process) const {
    return absl::StrCat("127.0.0.", 4 + process, ":", Port());
  }
  // Kills the supervisor, its process, and what that has in memory.
  void Lose(int process) {
    hosts_[process]->End(SIGKILL);
    std::error_code error;
    // Its process may still be about to end.
    do {
      std::filesystem::remove_all(Memory(process), error);
    } while (std::filesystem::exists(Memory(process)));
  }
  void AwaitCopyAt(int process) const {
    const std::string copy = Memory(process) + "/copy/island.safetensors";
    EXPECT_TRUE(Await([&] { return std::filesystem::exists(copy); }));
  }

  // Runs a command of an operator, as RunTool does.
  std::string Operate(std::vector<std::string> arguments) const {
    arguments.push_back("--coordinator=" + Address());
    if (GetParam()) {
      arguments.push_back(absl::StrCat("--tls=", Path("state/tls/operator")));
    }
    return RunTool(std::move(arguments));
  }

  std::string tokens_[2];
  std::unique_ptr<Process> hosts_[3];
};

TEST_F(ElasticTest, AnIslandGoesOnWithoutALostHostAndTakesItInAgain) {
  StartCoordinator();
  const std::vector<std::string> flags = {
      "--island_size=3", "--min_island_size=2", "--shrink_after=0.5"};
  const auto second = StartHost(1, flags);
  auto third = StartHost(2, flags);
  const auto first = StartHost(0, flags);
  // On a slow machine one of them comes too late, and joins later.
  ASSERT_NE(AwaitStepAfter("trains on 3 of 3 processes: 0, 1, 2", *first), "");
  const std::string saved = Path("saved0/island.safetensors");
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(saved); }));
  third->End(SIGKILL);

  const size_t killed = first->Output().size();
  const std::string without =
      AwaitStepAfter("trains on 2 of 3 processes: 0, 1", *first, killed);
  ASSERT_NE(without, "");
  EXPECT_THAT(without, HasSubstr("continuing from the checkpoint of step"));
  EXPECT_TRUE(Await([&] {
    return absl::StrContains(RunTool({"events", "--coordinator", Address()}),
                             "2 of 3 processes, without 2");
  }));

  third = StartHost(2, flags);
  const std::string with = AwaitStepAfter("trains on 3 of 3 processes: 0, 1, 2",
                                          *first, killed + without.size());
  ASSERT_NE(with, "");
  EXPECT_THAT(with, HasSubstr("restarts with more processes"));
  // No step is lost or made twice, and the two processes have not ended.
  const std::vector<int> steps = NumbersAfter("] step ", with);
  for (size_t i = 1; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i], steps[i - 1] + 1) << with;
  }
  for (const Process* const host : {first.get(), second.get()}) {
    EXPECT_EQ(NumbersAfter("ranks on this host again", host->Output()).size(),
              1U)
        << host->Output();
  }
  first->Signal(SIGTERM);
  for (Process* const host : {first.get(), second.get(), third.get()}) {
    EXPECT_EQ(host->Wait(), 0) << host->Output();
  }
}

TEST_F(ElasticTest, ASpareTakesThePlaceOfALostHost) {
  StartCoordinator();
  const std::vector<std::string> flags = {"--island_size=2"};
  const auto first = StartHost(0, flags);
  const auto second = StartHost(1, flags);
  ASSERT_TRUE(first->AwaitOutput("trains on 2 of 2 processes: 0, 1"))
      << first->Output();
  const auto third = StartHost(2, flags);
  const auto fourth = StartHost(3, flags);
  for (Process* const host : {third.get(), fourth.get()}) {
    ASSERT_TRUE(host->AwaitOutput("waits for a place")) << host->Output();
  }
  // The loss of a spare harms no process.
  third->Signal(SIGKILL);
  ASSERT_TRUE(first->AwaitOutput("step 100/")) << first->Output();
  second->Signal(SIGKILL);
  ASSERT_NE(AwaitStepAfter("trains on 2 of 2 processes: 0, 3", *first), "");

  // One spare is told to end; the other learns that the island has ended.
  const auto fifth = StartHost(4, flags);
  const auto sixth = StartHost(5, flags);
  for (Process* const host : {fifth.get(), sixth.get()}) {
    ASSERT_TRUE(host->AwaitOutput("waits for a place")) << host->Output();
  }
  EXPECT_EQ(fifth->End(SIGTERM), 0) << fifth->Output();
  first->Signal(SIGTERM);
  for (Process* const host : {first.get(), fourth.get(), sixth.get()}) {
    EXPECT_EQ(host->Wait(), 0) << host->Output();
  }
}

INSTANTIATE_TEST_SUITE_P(Tls, SuccessionTest, testing::Bool());

TEST_P(SuccessionTest, TheIslandGoesOnWithoutTheHostOfProcess0) {
  // The certificate of a process that may lead is renewed in time.
  if (GetParam()) {
    ASSERT_TRUE(hosts_[1]->AwaitOutput("renewed the certificate"))
        << hosts_[1]->Output();
  }
  AwaitCopyAt(1);
  const size_t lost = hosts_[1]->Output().size();
  Lose(0);
  const std::string without =
      AwaitStepAfter("trains on 2 of 3 processes: 1, 2", *hosts_[1], lost);
  ASSERT_NE(without, "");
  EXPECT_THAT(without, HasSubstr("process 1 leads the island, because no"));
  EXPECT_THAT(without, HasSubstr("continuing from the checkpoint of step"));
  EXPECT_TRUE(Await([&] {
    return absl::StrContains(Operate({"events"}),
                             "2 of 3 processes, without 0");
  }));

  // It comes back as an ordinary process.
  StartAgain(0);
  const std::string with = AwaitStepAfter("trains on 3 of 3 processes: 1, 0, 2",
                                          *hosts_[1], lost + without.size());
  ASSERT_NE(with, "");
  EXPECT_THAT(hosts_[0]->Output(),
              HasSubstr("process 1 leads the island, at 127.0.0.3:"));

  // Now the second is lost, and process 0 leads again.
  AwaitCopyAt(0);
  const size_t second = hosts_[0]->Output().size();
  Lose(1);
  const std::string again =
      AwaitStepAfter("trains on 2 of 3 processes: 0, 2", *hosts_[0], second);
  ASSERT_NE(again, "");
  EXPECT_THAT(again, HasSubstr("process 0 leads the island"));
  EXPECT_THAT(again, HasSubstr("continuing from the checkpoint of step"));

  hosts_[0]->Signal(SIGTERM);
  for (const int process : {0, 2}) {
    EXPECT_EQ(hosts_[process]->Wait(), 0) << hosts_[process]->Output();
  }
  // An island that has left needs no checkpoint in memory.
  for (const char* const file :
       {"/island.safetensors", "/copy/island.safetensors"}) {
    EXPECT_FALSE(std::filesystem::exists(Memory(0) + file)) << file;
  }
}

}  // namespace
}  // namespace causeway
