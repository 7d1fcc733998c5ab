// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Kills and stops ranks in processes with real signals: the other ranks must
// name the culprit in time.
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kTimeoutSeconds = 2;
// Allows for the limit, the reports, and a busy machine.
constexpr absl::Duration kInTime = absl::Seconds(kTimeoutSeconds + 15);

class CollectiveProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    Start(0, "127.0.0.1:0");
    ASSERT_TRUE(ranks_[0]->AwaitOutput("address "));
    const std::vector<std::string> words =
        absl::StrSplit(ranks_[0]->Output(), absl::ByAnyChar(" \n"));
    for (int rank = 1; rank < kRanks; ++rank) {
      Start(rank, words[1]);
    }
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->AwaitOutput("running")) << rank->Output();
    }
  }

  void Start(int rank, const std::string& address) {
    ranks_.push_back(std::make_unique<Process>(
        std::vector<std::string>{
            ProgramPath("worker/collective/testing/rank_program"),
            absl::StrCat(rank), absl::StrCat(kRanks), address,
            absl::StrCat(kTimeoutSeconds), "a secret"},
        absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name(), rank,
            ".log")));
  }

  // Expects every rank but `culprit` to end in time and print `what`.
  void ExpectOthersSay(int culprit, const std::string& what) {
    const absl::Time begin = absl::Now();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == culprit) continue;
      EXPECT_EQ(ranks_[rank]->Wait(begin + kInTime - absl::Now()), 1);
      EXPECT_THAT(ranks_[rank]->Output(), HasSubstr(what));
    }
  }

  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST_F(CollectiveProcessesTest, AKilledRankIsDead) {
  ranks_[2]->Signal(SIGKILL);
  ExpectOthersSay(2, "UNAVAILABLE: rank 2 is dead");
}

TEST_F(CollectiveProcessesTest, AStoppedRankIsStuck) {
  ranks_[1]->Signal(SIGSTOP);
  ExpectOthersSay(1, "DEADLINE_EXCEEDED: rank 1 is stuck");
  // The stopped rank learns what happened when it continues.
  ranks_[1]->Signal(SIGCONT);
  EXPECT_EQ(ranks_[1]->Wait(kInTime), 1) << ranks_[1]->Output();
}

// Rank 0 keeps the table in which the other ranks look for the culprit.
TEST_F(CollectiveProcessesTest, AKilledRank0IsDead) {
  ranks_[0]->Signal(SIGKILL);
  ExpectOthersSay(0, "UNAVAILABLE: rank 0 is dead");
}

TEST_F(CollectiveProcessesTest, AStoppedRank0IsStuck) {
  ranks_[0]->Signal(SIGSTOP);
  ExpectOthersSay(0, "DEADLINE_EXCEEDED: rank 0 is stuck");
  ranks_[0]->Signal(SIGKILL);
}

}  // namespace
}  // namespace causeway
