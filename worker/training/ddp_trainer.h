// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Data parallel training with a sharded optimizer (ZeRO-1), one thing after the
// other: gradients of the rank's part of the batch, reduce-scatter, AdamW on
// the shard, all-gather.
//
// Memory per parameter in bytes, with N ranks: 4 parameters, 4 gradients, 8 / N
// moments. The parameters are binary32, so their shard is its own master.
// Gradients in bf16 take 2, and 4 more for what is communicated.
#ifndef WORKER_TRAINING_DDP_TRAINER_H_
#define WORKER_TRAINING_DDP_TRAINER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// As MakeRankTrainer.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeDdpTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_DDP_TRAINER_H_
