// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner training of one island, which worker/island.h drives step by step.
// The implementation decides how many ranks take part and how they communicate.
#ifndef WORKER_INNER_TRAINER_H_
#define WORKER_INNER_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/optimizer/optimizer_state.h"
#include "worker/replica/fragment_replica.h"

namespace causeway {

struct InnerStepResult {
  // The mean training loss of the step's batch over the tokens that count, in
  // nats per token; NaN if it is unknown, or no token counts.
  double loss = 0;
  // The global norm of the mean gradient, before clipping.
  double gradient_norm = 0;
  double learning_rate = 0;
  // The tokens that the step trained on, over all ranks.
  uint64_t tokens = 0;
  // The micro-batches in the step, by rank.
  std::vector<int64_t> rank_micro_batches;
  // The time for which the ranks communicated during computation, and the part
  // of it in which this rank had nothing to compute. Both are zero if ranks
  // communicate only after computing (DDP).
  absl::Duration communication;
  absl::Duration exposed_communication;
  // The trouble that slows the ranks down now; its kind is unspecified if there
  // is none.
  v1::RankTrouble trouble;
};

// A model's loss on the held-out data.
struct ValidationLoss {
  // The mean, in nats per token.
  double loss = 0;
  // The tokens that were predicted; 0 if nothing is held out.
  uint64_t tokens = 0;
};

// The state of a trainer, over all ranks.
struct TrainerState {
  // fp32, flat in the order of common/tensors/model_layout.h.
  std::vector<float> parameters;
  OptimizerState optimizer;
  // The next micro-batch in the island's series, or 0 if the step determines
  // it.
  uint64_t next_micro_batch = 0;
  // The sequences of each of these micro-batches, or 0 if they are as many as
  // now.
  uint64_t micro_batch_size = 0;
};

// For use by one thread.
class InnerTrainer {
 public:
  virtual ~InnerTrainer() = default;

  // Begins the outer loop: returns the fragments of `joined`, in order, with
  // the parameters as their anchors. `joined` has the overlap_steps of the
  // island. Call once, before the first step, and destroy the fragments before
  // the trainer.
  virtual absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>>
  MakeReplica(const v1::JoinResponse& joined) = 0;

  // Makes one inner step, number `run_step` (from 1).
  //   OUT_OF_RANGE  Loss or gradient is not finite: training diverged.
  //   otherwise     A rank failed, and the trainer must not be used any more.
  virtual absl::StatusOr<InnerStepResult> Step(uint64_t run_step) = 0;

  // Save writes the trainer's state, between steps, without accumulated
  // gradients. Restore continues from such a state, before the first step, and
  // leaves the anchors as they are. Errors are those of Step. A trainer that
  // keeps no checkpoints overrides neither.
  virtual absl::Status Save(TrainerState& /*state*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Restore(TrainerState /*state*/) {
    return absl::OkStatus();
  }

  // Measures the `parameters` of a whole model on at most `max_sequences`
  // held-out sequences (0: all). Call between steps, after MakeReplica;
  // training is not affected. The loss may be non-finite. Errors are those of
  // Step, except OUT_OF_RANGE.
  virtual absl::StatusOr<ValidationLoss> Validate(
      std::vector<float> /*parameters*/, uint32_t /*max_sequences*/) {
    return ValidationLoss();
  }
  // Returns Dataset::Digest of the data, or "" without data.
  virtual std::string DataDigest() const { return ""; }
};

}  // namespace causeway

#endif  // WORKER_INNER_TRAINER_H_
