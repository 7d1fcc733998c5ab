// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/paced_trainer.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// A trainer whose steps take the time that the test sets.
class TimedTrainer : public InnerTrainer {
 public:
  TimedTrainer(absl::Time* now, const absl::Duration* step_time)
      : now_(now), step_time_(step_time) {}
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override {
    return std::vector<std::unique_ptr<FragmentReplica>>(joined.run_step());
  }
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    *now_ += *step_time_;
    return InnerStepResult{.loss = static_cast<double>(run_step)};
  }
  absl::Status Save(TrainerState& state) override {
    state.next_micro_batch = 5;
    return absl::OkStatus();
  }
  absl::Status Restore(const TrainerState& state) override {
    return absl::DataLossError(absl::StrCat(state.next_micro_batch));
  }

 private:
  absl::Time* const now_;
  const absl::Duration* const step_time_;
};

TEST(PacedTrainerTest, AStepLastsAtLeastTheSimulatedTime) {
  absl::Time now = absl::UnixEpoch();
  absl::Duration real = absl::Milliseconds(3);
  PacedTrainer trainer(
      std::make_unique<TimedTrainer>(&now, &real), absl::Milliseconds(10),
      [&] { return now; }, [&](absl::Duration time) { now += time; });
  ASSERT_OK_AND_ASSIGN(const InnerStepResult result, trainer.Step(7));
  EXPECT_EQ(result.loss, 7);
  EXPECT_EQ(now, absl::UnixEpoch() + absl::Milliseconds(10));
  // Neither a slow step nor the outer loop's work in between shortens a later
  // step.
  real = absl::Milliseconds(25);
  EXPECT_OK(trainer.Step(8));
  EXPECT_EQ(now, absl::UnixEpoch() + absl::Milliseconds(35));
  now += absl::Milliseconds(100);
  real = absl::Milliseconds(1);
  EXPECT_OK(trainer.Step(9));
  EXPECT_EQ(now, absl::UnixEpoch() + absl::Milliseconds(145));
  v1::JoinResponse joined;
  joined.set_run_step(3);
  ASSERT_OK_AND_ASSIGN(const auto replica, trainer.MakeReplica(joined));
  EXPECT_EQ(replica.size(), 3u);
}

TEST(PacedTrainerTest, TheStateIsThatOfTheTrainerInside) {
  absl::Time now = absl::UnixEpoch();
  const absl::Duration real;
  PacedTrainer trainer(
      std::make_unique<TimedTrainer>(&now, &real), absl::Milliseconds(10),
      [&] { return now; }, [](absl::Duration) {});
  TrainerState state;
  ASSERT_OK(trainer.Save(state));
  EXPECT_EQ(state.next_micro_batch, 5);
  EXPECT_THAT(trainer.Restore(state),
              StatusIs(absl::StatusCode::kDataLoss, "5"));
}

}  // namespace
}  // namespace causeway
