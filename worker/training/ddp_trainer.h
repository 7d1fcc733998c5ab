// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Data parallel training with a sharded optimizer (ZeRO-1). A step computes the
// gradients of the rank's part of the batch, then does a reduce-scatter, AdamW
// on the shard and an all-gather, one after the other.
//
// Memory per parameter in bytes, with N ranks: 4 for parameters, 4 for
// gradients, 8 / N for moments. Parameters are fp32, so their shard is its own
// master. Gradients in bf16 take 2, and 4 more for communication.
#ifndef WORKER_TRAINING_DDP_TRAINER_H_
#define WORKER_TRAINING_DDP_TRAINER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// See MakeRankTrainer.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeDdpTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_DDP_TRAINER_H_
