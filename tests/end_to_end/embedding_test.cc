// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Islands whose training loop is a program in C: real processes, one or several
// to an island.
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "absl/types/span.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

// Each toy island trains other values, so one that comes back is an outlier to
// one that has converged alone.
constexpr char kConfig[] = R"pb(
  name: "toy"
  tensors { sequence_length: 8 }
  training { total_steps: $0 batch_size: 4 }
  outer_optimizer { algorithm: SGD learning_rate: 1 }
  synchronization { inner_steps_per_round: 10 fragments: 3 overlap_steps: 2 }
  membership {
    min_islands: 2
    lease_seconds: 3
    heartbeat_seconds: 0.2
    outlier_factor: 0
  }
)pb";

// Norms are guarded, and ranks hold several strips of the only fragment.
constexpr char kGuardedConfig[] = R"pb(
  name: "toy"
  tensors { sequence_length: 8 }
  training { total_steps: 1000 batch_size: 4 }
  outer_optimizer { algorithm: SGD learning_rate: 1 }
  synchronization { inner_steps_per_round: 10 fragments: 1 overlap_steps: 2 }
  membership { min_islands: 1 lease_seconds: 3 heartbeat_seconds: 0.2 }
)pb";

class EmbeddingTest : public ProcessTestFixture {
 protected:
  // Starts a coordinator of a run of tensors whose values are all 5.
  void StartCoordinator(int total_steps) {
    Write("run.textproto", absl::Substitute(kConfig, total_steps));
    const std::vector<float> values(8192, 5.0f);
    const auto tensor = [&](const char* name, std::vector<int64_t> shape) {
      const int64_t size = shape[0] * (shape.size() > 1 ? shape[1] : 1);
      return FloatTensor(name, std::move(shape),
                         absl::MakeConstSpan(values).subspan(0, size));
    };
    ASSERT_OK(WriteSafetensors(
        Path("model.safetensors"),
        {.tensors = {tensor("embedding", {10, 4}),
                     // Longer than a strip.
                     tensor("h.0.weight", {1025, 7}), tensor("h.0.bias", {3}),
                     tensor("h.1.weight", {12, 30}),
                     tensor("h.1.bias", {1})}}));
    Coordinator(0);
  }

  void StartGuardedCoordinator() {
    Write("run.textproto", kGuardedConfig);
    const std::vector<float> values(1 << 20, 5.0f);
    ASSERT_OK(WriteSafetensors(
        Path("model.safetensors"),
        {.tensors = {
             FloatTensor("h.0.weight", {1024, 1024}, values),
             FloatTensor("h.1.weight", {1024, 512},
                         absl::MakeConstSpan(values).first(1 << 19))}}));
    Coordinator(0);
  }

  // Starts the coordinator, again if it was there before.
  void Coordinator(int port) {
    coordinator_ = StartServing(
        absl::StrCat("coordinator-", port),
        CoordinatorCommand(
            port, "state",
            {"--initial_parameters=" + Path("model.safetensors")}));
    port_ = Port();
  }

  std::unique_ptr<Process> Toy(const std::string& log,
                               const std::string& island, int parity,
                               const std::string& words = "") {
    std::vector<std::string> command = {
        ProgramPath("tests/end_to_end/toy_island"),
        absl::StrCat("127.0.0.1:", port_), island, absl::StrCat(parity)};
    for (absl::string_view word :
         absl::StrSplit(words, ' ', absl::SkipEmpty())) {
      command.emplace_back(word);
    }
    return Start(log, std::move(command));
  }

  // Starts an island of several processes.
  std::vector<std::unique_ptr<Process>> Ranks(const std::string& island,
                                              int parity, int ranks,
                                              const std::string& words,
                                              const std::string& log = "") {
    std::vector<std::unique_ptr<Process>> processes;
    std::string leader = "127.0.0.1:0";
    for (int rank = 0; rank < ranks; ++rank) {
      processes.push_back(
          Toy(absl::StrCat(log, island, "-", rank), island, parity,
              absl::StrCat(words, " rank ", rank, " ", ranks, " ", leader)));
      if (rank > 0) continue;
      EXPECT_TRUE(processes[0]->AwaitOutput(".\n"));
      leader = std::string(Between(processes[0]->Output(), "leader ", ".\n"));
    }
    return processes;
  }

  // Returns what comes after `begin` and before the next `end`.
  static std::string Between(const std::string& text, absl::string_view begin,
                             absl::string_view end) {
    const size_t at = text.find(begin.data(), 0, begin.size());
    if (at == std::string::npos) return "";
    const size_t from = at + begin.size();
    return text.substr(from, text.find(end.data(), from, end.size()) - from);
  }

  // Returns the number that follows `words`; -1 if they are not there.
  static int NumberAfter(const std::string& words, const Process& toy) {
    const std::string output = toy.Output();
    const size_t found = output.find(words);
    if (found == std::string::npos) return -1;
    return std::atoi(output.c_str() + found + words.size());
  }

  // Expects that the process succeeds, and prints a number below `most` after
  // `label`.
  static void ExpectError(Process& toy, const std::string& label, double most) {
    EXPECT_EQ(toy.Wait(), 0) << toy.Output();
    const std::string output = toy.Output();
    double error = 0;
    ASSERT_TRUE(absl::SimpleAtod(Between(output, label, "\n"), &error))
        << output;
    EXPECT_LT(error, most) << output;
  }

  std::unique_ptr<Process> coordinator_;
  int port_ = 0;
};

TEST_F(EmbeddingTest, TwoIslandsLearnWhatEachSeesHalfOf) {
  StartCoordinator(300);
  auto east = Toy("east", "east", 0);
  auto west = Toy("west", "west", 1);
  for (Process* island : {east.get(), west.get()}) {
    ExpectError(*island, "merged error ", 0.01);
    EXPECT_THAT(island->Output(),
                HasSubstr("begins with step 1, error 6.00000"));
  }
  EXPECT_EQ(coordinator_->Wait(), 0) << coordinator_->Output();
}

// Inner steps stop below half of bfloat16's resolution near 1.
TEST_F(EmbeddingTest, SixteenBitTensorsTrain) {
  StartCoordinator(300);
  auto east = Toy("east", "east", 0, "bf16");
  auto west = Toy("west", "west", 1, "f16");
  ExpectError(*east, "merged error ", 0.5 / 128 / 0.3);
  ExpectError(*west, "merged error ", 0.5 / 128 / 0.3);
}

// Ranks with copies of the model, beside ranks that share it unevenly. All wait
// once for the updates in flight.
TEST_F(EmbeddingTest, RanksHaveCopiesOrParts) {
  StartCoordinator(300);
  const auto copies = Ranks("east", 0, 2, "synchronize 11");
  const auto parts = Ranks("west", 1, 3, "sharded synchronize 15");
  ExpectError(*copies[0], "merged error ", 0.01);
  ExpectError(*copies[1], "finished, error ", 0.1);
  ExpectError(*parts[0], "merged error ", 0.01);
  ExpectError(*parts[1], "finished, error ", 0.1);
  ExpectError(*parts[2], "finished, error ", 0.1);
  for (const auto& rank : copies) {
    EXPECT_THAT(rank->Output(), HasSubstr("synchronized before step 11\n"));
  }
  for (const auto& rank : parts) {
    EXPECT_THAT(rank->Output(), HasSubstr("synchronized before step 15\n"));
  }
}

TEST_F(EmbeddingTest, AnIslandLeavesAndItsStateGoesOn) {
  StartCoordinator(3000);
  auto west = Toy("west", "west", 1, "pace 2");
  const std::string state = Path("east-state");
  const auto first =
      Ranks("east", 0, 2,
            absl::StrCat("sharded pace 2 save 40 ", state, " leave 60"));
  for (const auto& rank : first) {
    EXPECT_EQ(rank->Wait(), 0) << rank->Output();
    EXPECT_THAT(rank->Output(), HasSubstr("saved at 40"));
    EXPECT_THAT(rank->Output(), HasSubstr("\nleft, error "));
  }
  // The next one has another number of ranks.
  auto second = Toy("east-again", "east", 0,
                    absl::StrCat("pace 2 leave 400 resume ", state));
  EXPECT_EQ(second->Wait(), 0) << second->Output();
  // If it takes long to come, the run is further, but an island without the
  // state begins where it joins.
  EXPECT_GE(NumberAfter("begins with step ", *second), 40);
  EXPECT_LT(NumberAfter("begins with step ", *second),
            NumberAfter(" of 2, step ", *second))
      << second->Output();
}

TEST_F(EmbeddingTest, TheDeathOfARankEndsTheIslandAndOthersGoOn) {
  StartCoordinator(3000);
  auto west = Toy("west", "west", 1, "pace 2");
  const auto east = Ranks("east", 0, 2, "pace 2");
  ASSERT_TRUE(east[1]->AwaitOutput("begins with step 1"));
  east[1]->Signal(SIGKILL);
  EXPECT_EQ(east[0]->Wait(), 1);
  EXPECT_THAT(east[0]->Output(), HasSubstr("rank 1"));
  const auto again = Ranks("east", 0, 2, "pace 2", "again-");
  ASSERT_TRUE(again[0]->AwaitOutput("begins with step ")) << again[0]->Output();
  // The coordinator's death does not end the island either.
  EXPECT_EQ(coordinator_->End(SIGKILL), 128 + SIGKILL);
  Coordinator(port_);
  ExpectError(*again[0], "merged error ", 0.01);
  ExpectError(*again[1], "finished, error ", 0.1);
  ExpectError(*west, "merged error ", 0.01);
}

// Ranks with copies of the model each contribute a part from their own memory.
// Ranks with parts of each tensor contribute values that other ranks hold.
TEST_F(EmbeddingTest, TheQuarantineSaysWhichRanksMemoryIsWrong) {
  StartGuardedCoordinator();
  int islands = 0;
  // Returns what is said of the contribution of an island with these words.
  const auto reason = [&](const std::string& words) {
    const auto east = Ranks("east", 0, 4, words, absl::StrCat(++islands, "-"));
    for (const auto& rank : east) EXPECT_EQ(rank->Wait(), 1);
    const std::string list =
        RunTool({"quarantine", "list", "--coordinator", Address()});
    const std::vector<std::string> lines =
        absl::StrSplit(list, '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1 + islands) << list;
    EXPECT_THAT(lines.back(), HasSubstr("is more than 10 times"));
    return lines.back();
  };
  EXPECT_THAT(reason("corrupt 2 25"),
              HasSubstr("without the values of rank 2 (of 4) it would pass"));
  EXPECT_THAT(reason("corrupt -1 25"),
              HasSubstr("no single rank's part explains that"));
  EXPECT_THAT(reason("sharded corrupt 2 25"), Not(HasSubstr("rank")));
}

TEST_F(EmbeddingTest, AnIslandThatDivergedStartsAgainFromTheRun) {
  StartCoordinator(30000);
  const std::string checkpoints =
      absl::StrCat("pace 2 checkpoints ", Path("checkpoints"));
  auto west = Toy("west", "west", 1, "pace 2");
  auto east = Toy("east", "east", 0, absl::StrCat(checkpoints, " diverge 15"));
  EXPECT_EQ(east->Wait(), 1);
  EXPECT_THAT(east->Output(), HasSubstr("not finite"));
  auto again = Toy("east-again", "east", 0, checkpoints);
  EXPECT_TRUE(again->AwaitOutput("begins with step ")) << again->Output();
}

TEST_F(EmbeddingTest, AnIslandThatReportsNoTokensIsTold) {
  StartCoordinator(3000);
  auto west = Toy("west", "west", 1, "pace 2");
  auto east = Toy("east", "east", 0, "pace 2 tokens 0");
  EXPECT_TRUE(east->AwaitOutput("11 steps were reported with 0 tokens"))
      << east->Output();
}

}  // namespace
}  // namespace causeway
