// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training_progress.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/outer_loop/testing/island_driver.h"
#include "worker/sync/shared_outer_loop.h"
#include "worker/sync/testing/unreachable_client.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// A client that has moved some bytes.
class FakeClient : public UnreachableClient {
 public:
  uint64_t bytes_up() const override { return up; }
  uint64_t bytes_down() const override { return down; }
  void ReportLinks(v1::IslandProgress& progress) const override {
    progress.set_round_trip_seconds(0.25);
  }

  uint64_t up = 7;
  uint64_t down = 9;
};

// Collects the messages that are logged during its life.
class LogLines : public google::LogSink {
 public:
  LogLines() { google::AddLogSink(this); }
  ~LogLines() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    lines_.emplace_back(message, size);
  }
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

 private:
  std::vector<std::string> lines_;
};

class TrainingProgressTest : public testing::Test {
 protected:
  // Joins a run of DDP, and has the loop order its first step.
  void Join(v1::RunState state) {
    v1::JoinResponse joined = IslandDriver().joined();
    joined.mutable_config()->mutable_training()->set_inner_algorithm(
        v1::TrainingConfig::DDP);
    joined.set_run_state(state);
    progress_.SetRun(joined.config());
    Tell([&](OuterLoop& core) {
      core.membership().JoinAnswered(joined, now_);
      core.NextForTrainer(now_);
    });
  }
  void Publish(v1::RunState state) {
    Tell([&](OuterLoop& core) {
      v1::SessionResponse view = core.membership().state();
      view.set_run_state(state);
      core.membership().ViewArrived(view, now_);
    });
  }
  template <typename Event>
  void Tell(Event event) {
    loop_.Tell([&](OuterLoop& core, absl::Time) { event(core); });
  }
  std::string Activity() { return progress_.Report().activity(); }

  absl::Time now_ = absl::UnixEpoch();
  FakeClient client_;
  SharedOuterLoop loop_{OuterLoop::Options(), [this] { return now_; }};
  TrainingProgress progress_{&client_, &loop_, [this] { return now_; },
                             absl::Minutes(1)};
};

TEST_F(TrainingProgressTest, TheWorkOfRanksAddsUp) {
  const InnerStepResult step = {.tokens = 400,
                                .rank_micro_batches = {3, 1},
                                .communication = absl::Seconds(2),
                                .exposed_communication = absl::Seconds(0.5)};
  progress_.Record(1, step, absl::Seconds(1));
  progress_.Record(2, step, absl::Seconds(1));
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.tokens(), 800);
  ASSERT_EQ(report.ranks_size(), 2);
  EXPECT_EQ(report.ranks(0).micro_batches(), 6);
  EXPECT_EQ(report.ranks(0).tokens(), 600);
  EXPECT_EQ(report.ranks(1).micro_batches(), 2);
  EXPECT_EQ(report.ranks(1).tokens(), 200);
  EXPECT_EQ(report.communication_seconds(), 4);
  EXPECT_EQ(report.exposed_communication_seconds(), 1);
}

TEST_F(TrainingProgressTest, TheStepIsTheLoops) {
  v1::JoinResponse joined = IslandDriver().joined();
  joined.set_run_step(5);
  Tell([&](OuterLoop& core) {
    core.membership().JoinAnswered(joined, now_);
    core.NextForTrainer(now_);
  });
  EXPECT_EQ(progress_.Report().run_step(), 5);
  progress_.Record(6, {.tokens = 100}, absl::Seconds(1));
  EXPECT_EQ(progress_.Current().run_step(), 6);
}

TEST_F(TrainingProgressTest, TheLossIsTheMeanSinceTheLastReport) {
  progress_.Record(1, {.loss = 5}, absl::Seconds(1));
  progress_.Record(2, {.loss = 3}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 4);
  progress_.Record(3, {.loss = 1}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 1);
  EXPECT_EQ(progress_.Report().loss(), 1) << "no step since";
}

TEST_F(TrainingProgressTest, CurrentTakesNothingFromTheNextReport) {
  progress_.Record(1, {.loss = 5, .tokens = 2}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 5);
  progress_.Record(2, {.loss = 3, .tokens = 2}, absl::Seconds(1));
  const v1::IslandProgress current = progress_.Current();
  EXPECT_EQ(current.run_step(), 2);
  EXPECT_EQ(current.tokens(), 4);
  EXPECT_EQ(current.loss(), 5);
  EXPECT_EQ(progress_.Report().loss(), 3);
}

TEST_F(TrainingProgressTest, TheRateCoversTheLastSeconds) {
  // The first step is a warm-up.
  progress_.Record(1, {.tokens = 1000}, absl::Seconds(9));
  for (const uint64_t tokens : {100, 300}) {
    now_ += absl::Seconds(1);
    progress_.Record(2, {.tokens = tokens}, absl::Seconds(0.5));
    now_ += absl::Seconds(1);
    progress_.Record(3, {.tokens = tokens}, absl::Seconds(1));
    const v1::IslandProgress report = progress_.Report();
    EXPECT_EQ(report.tokens_per_second(), tokens);
    EXPECT_EQ(report.step_seconds(), 0.75);
  }
}

TEST_F(TrainingProgressTest, TroubleIsReportedWhileItLasts) {
  InnerStepResult slow;
  slow.trouble.set_kind(v1::RankTrouble::SLOW_RANK);
  slow.trouble.set_rank(1);
  progress_.Record(1, slow, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().rank_trouble().rank(), 1);
  progress_.Record(2, {}, absl::Seconds(1));
  EXPECT_FALSE(progress_.Report().has_rank_trouble());
  progress_.SetTrouble(slow.trouble);
  progress_.Record(3, {}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().rank_trouble().rank(), 1)
      << "steps do not clear what no report has had";
  progress_.Record(4, {}, absl::Seconds(1));
  EXPECT_FALSE(progress_.Report().has_rank_trouble());
}

TEST_F(TrainingProgressTest, TroublesThatNoReportHasHadAreReportedTogether) {
  v1::RankTrouble trouble;
  for (const uint32_t rank : {2, 1}) {
    trouble.set_kind(v1::RankTrouble::DEAD_RANK);
    trouble.set_rank(rank);
    trouble.set_text(absl::StrCat("rank ", rank));
    progress_.SetTrouble(trouble);
  }
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.rank_trouble().rank(), 2);
  EXPECT_EQ(report.rank_trouble().text(), "rank 2; rank 1");
  progress_.SetTrouble(trouble);
  EXPECT_EQ(progress_.Report().rank_trouble().text(), "rank 1");
}

TEST_F(TrainingProgressTest, ReportsWhatTheClientKnows) {
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.bytes_up(), 7);
  EXPECT_EQ(report.bytes_down(), 9);
  EXPECT_EQ(report.round_trip_seconds(), 0.25);
}

TEST_F(TrainingProgressTest, UnknownLossesDoNotCount) {
  Join(v1::RUNNING);
  progress_.Record(1, {.loss = 3}, absl::Seconds(1));
  progress_.Record(2, {.loss = std::nan("")}, absl::Seconds(1));
  EXPECT_EQ(progress_.Report().loss(), 3);
}

TEST_F(TrainingProgressTest, ReportsTheActivityOfTheLoop) {
  EXPECT_EQ(Activity(), "joining");
  Join(v1::WAITING_FOR_ISLANDS);
  EXPECT_EQ(Activity(), "loading parameters");
  Tell([&](OuterLoop& core) {
    core.Begun();
    core.NextForTrainer(now_);
  });
  EXPECT_EQ(Activity(), "waiting for islands");
  Publish(v1::RUNNING);
  Tell([&](OuterLoop& core) { core.NextForTrainer(now_); });
  EXPECT_EQ(Activity(), "training");
  InnerStepResult slow{.rank_micro_batches = {1, 1}};
  slow.trouble.set_kind(v1::RankTrouble::SLOW_RANK);
  slow.trouble.set_text("rank 1 is slow");
  progress_.Record(1, slow, absl::Seconds(1));
  EXPECT_EQ(Activity(), "training (DDP); rank 1 is slow");
  // The algorithm is shown for native trainers only, not for a run of tensors.
  v1::RunConfig of_tensors;
  of_tensors.mutable_tensors();
  progress_.SetRun(of_tensors);
  progress_.Record(2, {}, absl::Seconds(1));
  EXPECT_EQ(Activity(), "training");
  Publish(v1::PAUSED);
  Tell([&](OuterLoop& core) {
    core.Stepped(10);
    core.NextForTrainer(now_);
  });
  EXPECT_EQ(Activity(), "paused");
  Tell([&](OuterLoop& core) {
    core.RequestLeave("signal 15");
    core.NextForTrainer(now_);
  });
  EXPECT_EQ(Activity(), "leaving");
  EXPECT_FALSE(progress_.Current().has_wait());
}

// The update for the contribution of step 4 has not come after step 6, one step
// after it was due.
TEST_F(TrainingProgressTest, WaitsForLateUpdatesAreReported) {
  EXPECT_EQ(progress_.Report().overlap_steps(), 0);
  EXPECT_EQ(progress_.Report().uplink_bits(), 0);
  Join(v1::RUNNING);
  EXPECT_EQ(progress_.Report().overlap_steps(), 1);
  Tell([&](OuterLoop& core) {
    core.Begun();
    while (true) {
      const TrainerAction next = core.NextForTrainer(now_);
      if (std::holds_alternative<action::Wait>(next)) break;
      if (std::holds_alternative<action::Train>(next)) {
        core.Stepped(10);
      } else {
        core.SnapshotTaken();
      }
    }
  });
  now_ += absl::Seconds(3);
  const v1::IslandProgress report = progress_.Report();
  EXPECT_EQ(report.activity(),
            "waiting for fragment 0's update, due at step 5");
  EXPECT_EQ(report.wait().reason(), v1::Wait::UPDATE_DUE);
  EXPECT_EQ(report.wait().seconds(), 3);
  EXPECT_EQ(report.late_updates(), 1);
  EXPECT_EQ(report.overrun_steps(), 1);
  EXPECT_EQ(report.wait_seconds(), 3);
  EXPECT_EQ(progress_.waited(), absl::Seconds(3));
}

TEST_F(TrainingProgressTest, ReportsTheMemoryInUseNow) {
  constexpr size_t kBytes = 128 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 'x', kBytes);
  const uint64_t before = progress_.Report().memory_bytes();
  EXPECT_GT(before, kBytes);
  munmap(memory, kBytes);
  EXPECT_LT(progress_.Report().memory_bytes(), before - kBytes / 2);
}

TEST_F(TrainingProgressTest, LogsALineAMinuteAndTheLastStep) {
  v1::RunConfig config;
  config.mutable_training()->set_total_steps(5);
  progress_.SetRun(config);
  client_.up = 3 << 20;
  client_.down = 5 << 19;
  const InnerStepResult step = {.loss = 2,
                                .gradient_norm = 0.5,
                                .learning_rate = 1e-3,
                                .tokens = 400,
                                .rank_micro_batches = {3, 1},
                                .communication = absl::Seconds(2),
                                .exposed_communication = absl::Seconds(0.5)};
  LogLines lines;
  progress_.Record(1, {.loss = 3, .rank_micro_batches = {4}}, absl::Seconds(9));
  EXPECT_THAT(lines.Take(),
              ElementsAre("step 1/5  loss 3.0000  gradient 0.000  lr 0.00e+00  "
                          "0 tokens/s  up 3.0 MiB  down 2.5 MiB  waited 0.000 "
                          "s"));
  now_ += absl::Seconds(59);
  progress_.Record(2, step, absl::Seconds(1));
  EXPECT_THAT(lines.Take(), ElementsAre());
  now_ += absl::Seconds(1);
  progress_.Record(3, step, absl::Seconds(1));
  EXPECT_THAT(lines.Take(),
              ElementsAre("step 3/5  loss 2.0000  gradient 0.500  lr 1.00e-03  "
                          "7 tokens/s  up 3.0 MiB  down 2.5 MiB  waited 0.000 "
                          "s  micro-batches 3+1  communication 2.000 s, 75.0 % "
                          "hidden"));
  progress_.Record(4, step, absl::Seconds(1));
  EXPECT_THAT(lines.Take(), ElementsAre());
  progress_.Record(5, step, absl::Seconds(1));
  EXPECT_THAT(lines.Take(), SizeIs(1));
}

}  // namespace
}  // namespace causeway
