// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inner training of one island: what happens between two looks at the outer
// loop. The island (worker/island.h) drives it; how many ranks take part and
// how they communicate is the implementation's affair.
#ifndef WORKER_INNER_TRAINER_H_
#define WORKER_INNER_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/optimizer/adamw_state.h"
#include "worker/replica/fragment_replica.h"

namespace causeway {

struct InnerStepResult {
  // Mean training loss of the step's batch, in nats per token.
  double loss = 0;
  // Global norm of the mean gradient, before clipping.
  double gradient_norm = 0;
  double learning_rate = 0;
  // Tokens the step trained on, over all ranks.
  uint64_t tokens = 0;
  // Micro-batches in the step, by rank.
  std::vector<int64_t> rank_micro_batches;
  // How long the ranks communicated beside computing, and how long of that this
  // rank had nothing to compute. Zero where one follows the other (DDP).
  absl::Duration communication;
  absl::Duration exposed_communication;
  // What slows the ranks down at present; its kind is unspecified if nothing
  // does.
  v1::RankTrouble trouble;
};

// What a trainer knows, of all ranks together.
struct TrainerState {
  // In fp32, flat in the order of common/model_layout.h. Of Save only: a
  // trainer gets its parameters when it is made.
  std::vector<float> parameters;
  AdamWState optimizer;
  // The micro-batch to go on with, of the island's series; 0 if the step tells.
  uint64_t next_micro_batch = 0;
};

// For one thread.
class InnerTrainer {
 public:
  virtual ~InnerTrainer() = default;

  // Begins the outer loop: the fragments of `joined`, in order, whose anchors
  // are the parameters. `joined` has the overlap_steps of the island. Once,
  // before the first step; the fragments are gone before the trainer.
  virtual absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>>
  MakeReplica(const v1::JoinResponse& joined) = 0;

  // One inner step: the one that makes `run_step` steps complete (from 1).
  //   OUT_OF_RANGE  loss or gradient is not finite: training has diverged.
  //   else          a rank has failed; the trainer is of no use any more.
  virtual absl::StatusOr<InnerStepResult> Step(uint64_t run_step) = 0;

  // Between steps: its state, and to go on from one, before the first step.
  // Gradients that are accumulated already are not part of it. Errors as of
  // Step. A trainer that overrides neither has no state.
  virtual absl::Status Save(TrainerState& /*state*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Restore(const TrainerState& /*state*/) {
    return absl::OkStatus();
  }
};

}  // namespace causeway

#endif  // WORKER_INNER_TRAINER_H_
