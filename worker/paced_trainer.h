// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A trainer whose steps take a simulated time: after each real step it waits
// until that time is over. A small model can thus stand for a large one where
// only the ratio of step time to transfer time counts, as in experiments on
// slow links (tests/wan), and islands on one machine do not compete for
// processors. The replica is the wrapped trainer's.
#ifndef WORKER_PACED_TRAINER_H_
#define WORKER_PACED_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/inner_trainer.h"
#include "worker/replica/fragment_replica.h"

namespace causeway {

class PacedTrainer : public InnerTrainer {
 public:
  // Later steps do not make up for a step that takes longer than `step_time`.
  // `sleep` blocks for the given time.
  PacedTrainer(std::unique_ptr<InnerTrainer> trainer, absl::Duration step_time,
               Clock now, std::function<void(absl::Duration)> sleep)
      : trainer_(std::move(trainer)),
        step_time_(step_time),
        now_(std::move(now)),
        sleep_(std::move(sleep)) {}

  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override {
    return trainer_->MakeReplica(joined);
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    const absl::Time end = now_() + step_time_;
    absl::StatusOr<InnerStepResult> result = trainer_->Step(run_step);
    if (const absl::Duration left = end - now_(); left > absl::ZeroDuration()) {
      sleep_(left);
    }
    return result;
  }

  absl::Status Save(TrainerState& state) override {
    return trainer_->Save(state);
  }
  absl::Status Restore(const TrainerState& state) override {
    return trainer_->Restore(state);
  }
  absl::StatusOr<ValidationLoss> Validate(std::vector<float> parameters,
                                          uint32_t max_sequences) override {
    return trainer_->Validate(std::move(parameters), max_sequences);
  }
  std::string DataDigest() const override { return trainer_->DataDigest(); }

 private:
  const std::unique_ptr<InnerTrainer> trainer_;
  const absl::Duration step_time_;
  const Clock now_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace causeway

#endif  // WORKER_PACED_TRAINER_H_
