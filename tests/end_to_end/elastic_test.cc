// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Islands whose number of processes changes. Each process has a supervisor of
// its own, which stands for a host.
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// One, two or three ranks can share the batch.
constexpr char kConfig[] = R"pb(
  name: "elastic"
  model {
    layers: 2
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
  training {
    total_steps: 1000000
    batch_size: 12
    micro_batch_size: 2
    learning_rate: 1e-3
  }
  synchronization { inner_steps_per_round: 20 overlap_steps: 2 }
)pb";

class ElasticTest : public ProcessTestFixture {
 protected:
  void StartCoordinator() {
    Write("run.textproto", kConfig);
    coordinator_ = Start("coordinator", CoordinatorCommand(0));
    ASSERT_TRUE(coordinator_->AwaitOutput("waiting for islands"));
  }

  // Starts the supervisor of a process.
  std::unique_ptr<Process> StartHost(
      int process, const std::vector<std::string>& flags) const {
    std::vector<std::string> command = WorkerCommand("crew", Port());
    command.insert(
        command.end(),
        {"--supervise=1", "--on_rank_fault=act", "--rank_host=127.0.0.1",
         "--simulated_step_seconds=0.01",
         absl::StrCat("--island_leader=127.0.0.2:", Port()),
         absl::StrCat("--island_rank=", process),
         absl::StrCat("--recent_checkpoint_dir=", Path("memory"), process)});
    command.insert(command.end(), flags.begin(), flags.end());
    return Start(absl::StrCat("host", process), std::move(command));
  }

  std::unique_ptr<Process> coordinator_;
};

// Returns the numbers that follow `word` in a log, from `text` on.
std::vector<int> NumbersAfter(absl::string_view word, absl::string_view log) {
  std::vector<int> numbers;
  const std::vector<absl::string_view> parts = absl::StrSplit(log, word);
  for (size_t i = 1; i < parts.size(); ++i) {
    numbers.push_back(std::atoi(std::string(parts[i].substr(0, 12)).c_str()));
  }
  return numbers;
}

// Returns what the process has printed after `text`, once it has reached a
// later step.
std::string AwaitStepAfter(absl::string_view text, Process& process) {
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (absl::Now() < end) {
    const std::string output = process.Output();
    const size_t begin = output.rfind(std::string(text));
    if (begin != std::string::npos) {
      std::string rest = output.substr(begin);
      if (!NumbersAfter("] step ", rest).empty()) return rest;
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  ADD_FAILURE() << "no step after \"" << text << "\":\n" << process.Output();
  return "";
}

TEST_F(ElasticTest, AnIslandGoesOnWithoutAHostThatIsLost) {
  StartCoordinator();
  const std::vector<std::string> flags = {
      "--island_size=3", "--min_island_size=2", "--shrink_after=1"};
  const auto second = StartHost(1, flags);
  const auto third = StartHost(2, flags);
  const auto first = StartHost(0, flags);
  ASSERT_TRUE(first->AwaitOutput("trains on 3 of 3 processes: 0, 1, 2"))
      << first->Output();
  ASSERT_TRUE(first->AwaitOutput("step 60/")) << first->Output();
  third->Signal(SIGKILL);

  const std::string rest =
      AwaitStepAfter("trains on 2 of 3 processes: 0, 1", *first);
  // It went on from the newest checkpoint, not from the beginning.
  const std::vector<int> from =
      NumbersAfter("going on from the checkpoint of step ", first->Output());
  ASSERT_EQ(from.size(), 1U) << first->Output();
  EXPECT_GT(from[0], 0);
  EXPECT_GT(NumbersAfter("] step ", rest)[0], from[0]);
  EXPECT_THAT(
      RunTool({"events", absl::StrCat("--coordinator=127.0.0.1:", Port())}),
      HasSubstr("2 of 3 processes, without 2"));
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
  ASSERT_TRUE(first->AwaitOutput("step 30/")) << first->Output();
  // A spare that is lost is nobody's loss.
  third->Signal(SIGKILL);
  ASSERT_TRUE(first->AwaitOutput("step 60/")) << first->Output();
  second->Signal(SIGKILL);
  AwaitStepAfter("trains on 2 of 2 processes: 0, 3", *first);

  const auto fifth = StartHost(4, flags);
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(), 0) << first->Output();
  EXPECT_EQ(fourth->Wait(), 0) << fourth->Output();
  fifth->Signal(SIGTERM);
  EXPECT_EQ(fifth->Wait(), 0) << fifth->Output();
}

}  // namespace
}  // namespace causeway
