// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions that the rank trainers share.
#ifndef WORKER_TRAINING_STEP_RESULT_H_
#define WORKER_TRAINING_STEP_RESULT_H_

#include <cstdint>

#include "worker/inner_trainer.h"
#include "worker/optimizer/sharded_adamw.h"
#include "worker/training/gradient_source.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// Returns the result of a step that has committed `reduced`.
inline InnerStepResult MakeInnerStepResult(const ReducedGradient& reduced,
                                           double learning_rate,
                                           const GradientSource& gradients) {
  return {.loss = reduced.loss,
          .gradient_norm = reduced.gradient_norm,
          .learning_rate = learning_rate,
          .tokens =
              static_cast<uint64_t>(reduced.micro_batches) * gradients.tokens(),
          .rank_micro_batches = reduced.rank_micro_batches};
}

// Returns the micro-batches in a rank's share of the batch.
inline int64_t MicroBatchesPerRank(const RankTrainerOptions& options) {
  return int64_t{options.training.batch_size()} /
         (int64_t{options.training.micro_batch_size()} *
          options.communicator->size());
}

}  // namespace causeway

#endif  // WORKER_TRAINING_STEP_RESULT_H_
