// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Training that computes gradients while it communicates: ACCO (Nabli et al.
// 2024, arXiv 2406.02613) and the methods that it is compared with. A separate
// thread runs reduce-scatter, AdamW on the shard and all-gather; meanwhile the
// calling thread accumulates micro-batches.
//
// Below, theta are the parameters, Opt is an AdamW update, and sums are over
// ranks and their micro-batches, of which each rank makes as many as it can.
//
// ACCO: a step has two halves. G~, of n~ micro-batches, is the half gradient
// from the previous step.
//   1. communicate  theta~ = Opt(theta, G~ / n~)           nothing is committed
//      compute      G      = sum of gradients at theta, n of them
//   2. communicate  theta' = Opt(theta, (G~ + G) / (n~ + n))    the real update
//      compute      G~'    = sum of gradients at theta~
// The first step computes its G~ at theta, without overlap.
//
// DPU: a step has one half; its gradient is that of the previous step.
//      communicate  theta' = Opt(theta, G / n)
//      compute      G'     = sum of gradients at theta
//
// WP: as DPU, with gradients at the predicted parameters.
//      communicate  theta' = Opt(theta, G / n);  theta~' = Opt(theta', G / n)
//      compute      G'     = sum of gradients at theta~
// ACCO's and WP's estimates leave the moments and the number of updates as they
// were.
//
// Memory per parameter in bytes, with N ranks: 4 for parameters, 4 for
// gradients (2 in bf16), 4 for communication, 12 / N for master and moments,
// and 4 more with WP.
#ifndef WORKER_TRAINING_OVERLAPPED_TRAINER_H_
#define WORKER_TRAINING_OVERLAPPED_TRAINER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// Makes a trainer for ACCO, DPU or WP; see MakeRankTrainer.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeOverlappedTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_OVERLAPPED_TRAINER_H_
