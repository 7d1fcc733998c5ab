// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of islands: a trainer whose steps add the same number to every
// parameter.
#ifndef WORKER_TESTING_DRIFTING_TRAINER_H_
#define WORKER_TESTING_DRIFTING_TRAINER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/testing/host_replica.h"

namespace causeway {

class DriftingTrainer : public InnerTrainer {
 public:
  static constexpr float kDrift = 0.001f;
  static constexpr uint64_t kTokens = 100;

  // Called before each step; an error ends the island.
  using BeforeStep = std::function<absl::Status(uint64_t run_step)>;

  DriftingTrainer(std::vector<float> parameters, BeforeStep before_step)
      : parameters_(std::move(parameters)),
        before_step_(std::move(before_step)) {}

  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override {
    ASSIGN_OR_RETURN(
        const FragmentMap map,
        FragmentMap::Create(MakeModelLayout(joined.config().model()),
                            joined.plan()));
    ASSIGN_OR_RETURN(
        replica_,
        HostReplica::Create(
            map, MakeReplicaOptions(joined.config().synchronization()),
            absl::MakeSpan(parameters_)));
    return replica_->Fragments();
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    RETURN_IF_ERROR(before_step_(run_step));
    for (float& value : parameters_) value += kDrift;
    ++updates_;
    return InnerStepResult{.loss = 1, .tokens = kTokens};
  }

  absl::Status Save(TrainerState& state) override {
    state.parameters = parameters_;
    state.optimizer.updates = updates_;
    return absl::OkStatus();
  }
  absl::Status Restore(TrainerState state) override {
    // The replica has their address.
    std::copy(state.parameters.begin(), state.parameters.end(),
              parameters_.begin());
    updates_ = state.optimizer.updates;
    return absl::OkStatus();
  }

 private:
  std::vector<float> parameters_;
  const BeforeStep before_step_;
  uint64_t updates_ = 0;
  std::unique_ptr<HostReplica> replica_;
};

}  // namespace causeway

#endif  // WORKER_TESTING_DRIFTING_TRAINER_H_
