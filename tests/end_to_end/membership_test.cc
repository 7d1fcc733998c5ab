// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests islands that leave, stand still, diverge or come late, over real gRPC,
// and the fate of their tokens.
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "tests/end_to_end/synthetic_run.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr uint64_t kTokens = QuadraticTrainer::kTokensPerStep;

uint64_t SumOfFates(const v1::TokenLedger& ledger) {
  return ledger.merged() + ledger.partial_merged() + ledger.expired() +
         ledger.refused() + ledger.quarantined() + ledger.pending();
}

class MembershipTest : public testing::Test {
 protected:
  void Start(const v1::RunConfig& config) {
    state_dir_ = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name(), "-",
        absl::ToUnixMicros(absl::Now()));
    ASSERT_OK_AND_ASSIGN(run_, CoordinatorUnderTest::Start(config, state_dir_));
  }

  IslandUnderTest::Options Options(
      const std::string& name,
      std::function<absl::Status(uint64_t)> before_step = [](uint64_t) {
        return absl::OkStatus();
      }) {
    return {.name = name,
            .address = run_->address(),
            .target = 1,
            .instance_id = ++instances_,
            .before_step = std::move(before_step)};
  }

  int Cli(std::vector<std::string> words) {
    out_.str("");
    words.push_back("--coordinator=" + run_->address());
    return RunCommandLine("causeway", "", ControlCommands(&absl::Now), words,
                          out_, out_);
  }

  static bool Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  v1::FragmentStatus Fragment() {
    return run_->engine().ListFragments().fragments(0);
  }
  v1::IslandStatus IslandNamed(const std::string& name) {
    const v1::ListIslandsResponse all = run_->engine().ListIslands(true);
    for (const v1::IslandStatus& island : all.islands()) {
      if (island.island_id() == name) return island;
    }
    return {};
  }

  std::unique_ptr<CoordinatorUnderTest> run_;
  std::string state_dir_;
  uint64_t instances_ = 0;
  std::ostringstream out_;
};

TEST_F(MembershipTest, AnIslandThatLeavesLosesNothing) {
  Start(SyntheticConfig());
  absl::Notification at_fifteen;
  absl::Notification asked;
  IslandUnderTest north(Options("north"));
  IslandUnderTest south(Options("south", [&](uint64_t step) {
    if (step == 15) {
      at_fifteen.Notify();
      asked.WaitForNotification();
    }
    return absl::OkStatus();
  }));
  at_fifteen.WaitForNotification();
  south.RequestLeave("SIGTERM");
  asked.Notify();
  EXPECT_THAT(south.Join(), IsCancelled("SIGTERM"));
  EXPECT_EQ(IslandNamed("south").state(), v1::IslandStatus::LEFT);
  ASSERT_OK(north.Join());
  const v1::TokenLedger ledger = Fragment().ledger();
  EXPECT_EQ(ledger.merged(), (30 + 10) * kTokens);
  // The island finished its current step, which is included.
  EXPECT_EQ(ledger.partial_merged(), 5 * kTokens);
  EXPECT_EQ(ledger.expired(), 0);
  EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
}

TEST_F(MembershipTest, DrainedIslandsLeaveAndMayComeBack) {
  Start(SyntheticConfig());
  absl::Notification at_five;
  absl::Notification go_on;
  IslandUnderTest north(Options("north"));
  IslandUnderTest south(Options("south", [&](uint64_t step) {
    if (step == 5) {
      at_five.Notify();
      go_on.WaitForNotification();
    }
    // The island learns of the drain a moment later; step 10 ends a whole
    // window.
    if (step > 5 && step < 10) absl::SleepFor(absl::Milliseconds(500));
    return absl::OkStatus();
  }));
  at_five.WaitForNotification();
  EXPECT_EQ(Cli({"drain", "nobody"}), kExitFailure);
  EXPECT_THAT(out_.str(), HasSubstr("nobody"));
  ASSERT_EQ(Cli({"drain", "south", "--reason", "maintenance"}), kExitOk);
  EXPECT_TRUE(IslandNamed("south").draining());
  go_on.Notify();
  EXPECT_THAT(south.Join(), IsCancelled("drained"));
  IslandUnderTest back(Options("south"));
  // It either joined in time, or the run was over.
  const absl::Status end = back.Join();
  EXPECT_TRUE(end.ok() || absl::IsCancelled(end)) << end;
  ASSERT_OK(north.Join());
  const v1::TokenLedger ledger = Fragment().ledger();
  EXPECT_GE(ledger.partial_merged(), 5 * kTokens);
  EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
}

TEST_F(MembershipTest, APausedRunStandsStillAndGoesOn) {
  Start(SyntheticConfig());
  ASSERT_EQ(Cli({"pause", "--reason", "lunch"}), kExitOk);
  IslandUnderTest north(Options("north"));
  IslandUnderTest south(Options("south"));
  ASSERT_TRUE(Await([&] {
    return IslandNamed("north").progress().wait().reason() ==
               v1::Wait::PAUSED &&
           IslandNamed("south").progress().wait().reason() == v1::Wait::PAUSED;
  }));
  EXPECT_EQ(run_->engine().GetRun().state(), v1::PAUSED);
  EXPECT_EQ(run_->engine().GetRun().message(), "lunch");
  EXPECT_EQ(IslandNamed("north").progress().tokens(), 0);
  ASSERT_EQ(Cli({"resume"}), kExitOk);
  EXPECT_OK(north.Join());
  EXPECT_OK(south.Join());
  EXPECT_EQ(Fragment().ledger().merged(), 60 * kTokens);
}

TEST_F(MembershipTest, ADivergedIslandStartsAgainFromTheRunsParameters) {
  Start(SyntheticConfig());
  bool diverged = false;
  IslandUnderTest::Options sick = Options("sick");
  // The run is not over before the other island has come back.
  IslandUnderTest healthy(Options("healthy", [&](uint64_t step) {
    if (step == 11) {
      EXPECT_TRUE(
          Await([&] { return IslandNamed("sick").incarnation() == 2; }));
    }
    return absl::OkStatus();
  }));
  sick.poison = [&](uint64_t step) {
    // Poison one step, once.
    return step == 3 && !std::exchange(diverged, true);
  };
  IslandUnderTest island(sick);
  EXPECT_OK(healthy.Join());
  const absl::Status end = island.Join();
  // It may be too late for the run when it starts again.
  EXPECT_TRUE(end.ok() || absl::IsCancelled(end)) << end;
  EXPECT_TRUE(diverged);
  const v1::IslandStatus status = IslandNamed("sick");
  EXPECT_EQ(status.incarnation(), 2);
  EXPECT_EQ(Cli({"quarantine", "list"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("a value of it is not finite"));
  EXPECT_EQ(Cli({"quarantine", "admit", "1"}), kExitFailure);
  EXPECT_EQ(Cli({"quarantine", "drop", "1"}), kExitOk);
  EXPECT_EQ(Cli({"quarantine", "keep", "1"}), kExitUsage);
  EXPECT_EQ(Fragment().ledger().refused(), 10 * kTokens);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> parameters, run_->Parameters());
  for (const float value : parameters) ASSERT_TRUE(std::isfinite(value));
}

// South comes too late to every second round, and contributes windows of twice
// the length to the others.
TEST_F(MembershipTest, MissedRoundsAreMadeUpForExactly) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_training()->set_total_steps(40);
  // South is late on purpose, and still trains every step.
  config.mutable_synchronization()->set_inner_step_shares(
      v1::SynchronizationConfig::NOBODY);
  // Long enough for both islands to contribute when neither is held up.
  config.mutable_membership()->set_grace_seconds(3);
  config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  Start(config);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, run_->Parameters());
  std::atomic<uint64_t> south_step = 0;
  const auto missed = [](uint64_t step) { return step == 10 || step == 30; };
  const auto wait = [](const std::function<bool()>& condition) {
    return Await(condition) ? absl::OkStatus()
                            : absl::InternalError("it never happened");
  };
  // North also begins the next round after south: an island that has missed a
  // round continues from the step that the others have reached.
  IslandUnderTest north(Options("north", [&](uint64_t step) {
    if (!missed(step) && !missed(step - 1)) return absl::OkStatus();
    return wait([&] { return south_step >= step; });
  }));
  IslandUnderTest::Options late = Options("south", [&](uint64_t step) {
    south_step = step;
    if (!missed(step)) return absl::OkStatus();
    // Wait for the round that this step belongs to.
    return wait([&] { return Fragment().head().version() > step / 20 * 2; });
  });
  late.target = -2;
  IslandUnderTest south(late);
  EXPECT_OK(north.Join());
  EXPECT_OK(south.Join());

  const v1::TokenLedger ledger = Fragment().ledger();
  EXPECT_EQ(ledger.reported(), 80 * kTokens);
  EXPECT_EQ(ledger.merged(), 80 * kTokens);
  EXPECT_EQ(IslandNamed("south").contributions_merged(), 2);

  ASSERT_OK_AND_ASSIGN(const std::vector<float> merged, run_->Parameters());
  const auto descend = [](double value, double target) {
    for (int step = 0; step < 10; ++step) {
      value -= QuadraticTrainer::kRate * (value - target);
    }
    return value;
  };
  for (size_t i = 0; i < initial.size(); ++i) {
    double theta = initial[i];
    for (int pair = 0; pair < 2; ++pair) {
      const double alone = descend(theta, 1);
      // South keeps its parameters and adds the change of the round.
      const double rebased = descend(theta, -2) + (alone - theta);
      theta = (descend(alone, 1) + 2 * descend(rebased, -2)) / 3;
    }
    ASSERT_NEAR(merged[i], theta, 1e-5) << "value " << i;
  }
}

// South lags behind by more than any grace window. If it trained all steps of a
// round, it would be late in every round and merged only at the end.
TEST_F(MembershipTest, AnIslandThatIsAlwaysSlowerTakesPart) {
  v1::RunConfig config = SyntheticConfig();
  constexpr uint64_t kRounds = 60;
  config.mutable_training()->set_total_steps(10 * kRounds);
  config.mutable_membership()->set_grace_seconds(0.03);
  Start(config);
  std::atomic<uint64_t> trained = 0;
  const auto takes = [&](absl::Duration step) {
    return [&trained, step](uint64_t) {
      absl::SleepFor(step);
      ++trained;
      return absl::OkStatus();
    };
  };
  IslandUnderTest north(Options("north", takes(absl::Milliseconds(8))));
  IslandUnderTest south(Options("south", takes(absl::Milliseconds(40))));
  EXPECT_OK(north.Join());
  EXPECT_OK(south.Join());
  EXPECT_GE(IslandNamed("south").contributions_merged(), kRounds / 6);
  const v1::TokenLedger ledger = Fragment().ledger();
  EXPECT_GT(ledger.merged(), 10 * kRounds * kTokens);
  EXPECT_LE(ledger.merged(), trained * kTokens);
  EXPECT_EQ(ledger.reported(), SumOfFates(ledger));
}

}  // namespace
}  // namespace causeway
