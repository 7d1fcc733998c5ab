// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Training that computes gradients while it communicates: ACCO (Nabli et al.
// 2024, arXiv 2406.02613) and what it is compared with. A thread of its own
// runs reduce-scatter, AdamW on the shard and all-gather; the calling thread
// accumulates micro-batches until that is done.
//
// With theta the parameters, Opt an AdamW update, and sums over ranks and their
// micro-batches, of which each rank makes as many as it can:
//
// ACCO: a step has two halves. G~ of n~ micro-batches is the half gradient that
// the step before has left.
//   1. communicate  theta~ = Opt(theta, G~ / n~)           nothing is committed
//      compute      G      = sum of gradients at theta, n of them
//   2. communicate  theta' = Opt(theta, (G~ + G) / (n~ + n))    the real update
//      compute      G~'    = sum of gradients at theta~
// The first step makes its G~ at theta, with nothing to hide behind it.
//
// DPU: one half; the gradient is that of the step before.
//      communicate  theta' = Opt(theta, G / n)
//      compute      G'     = sum of gradients at theta
//
// WP: as DPU, with gradients where the parameters are expected to be.
//      communicate  theta' = Opt(theta, G / n);  theta~' = Opt(theta', G / n)
//      compute      G'     = sum of gradients at theta~
// Both estimates leave moments and number of updates as they were.
//
// Memory per parameter in bytes, with N ranks: 4 parameters, 4 gradients (2 in
// bf16), 4 for what is communicated, 12 / N master and moments; WP has 4 more.
#ifndef WORKER_TRAINING_OVERLAPPED_TRAINER_H_
#define WORKER_TRAINING_OVERLAPPED_TRAINER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// As MakeRankTrainer, for ACCO, DPU and WP.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeOverlappedTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_OVERLAPPED_TRAINER_H_
