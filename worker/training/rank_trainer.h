// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner training of one rank of an island. The ranks step together: each
// calls Step for the same run step and computes gradients on its own
// micro-batches, and after the step all hold the same parameters. The run's
// training.inner_algorithm is one of these:
//
// DDP: data parallel training with a sharded optimizer (ZeRO-1). A step
// computes the gradients of the rank's part of the batch, then does a
// reduce-scatter, an update of the shard and an all-gather, one after the
// other.
//
// ACCO (Nabli et al. 2024, arXiv 2406.02613) computes gradients while it
// communicates. A separate thread runs reduce-scatter, the update and
// all-gather; meanwhile the calling thread accumulates micro-batches.
//
// Below, theta are the parameters, Opt is an update of the optimizer, and sums
// are over all micro-batches of all ranks. Each rank makes as many as it can.
//
// ACCO: a step has two halves. G~, of n~ micro-batches, is the half gradient
// from the previous step.
//   1. communicate  theta~ = Opt(theta, G~ / n~)           nothing is committed
//      compute      G      = sum of gradients at theta, n of them
//   2. communicate  theta' = Opt(theta, (G~ + G) / (n~ + n))    the real update
//      compute      G~'    = sum of gradients at theta~
// The first step computes its G~ at theta, without overlap. Estimates do not
// change the optimizer's state.
//
// Memory per parameter in bytes, with N ranks: 4 for parameters, 4 for
// gradients, 4 for communication, and 12 / N for master and moments. DDP takes
// only 8 / N, for moments, because its parameters are the masters, and nothing
// for communication. A matrix of Muon has momentum, 4 / N, instead of moments;
// its owner also takes room to orthogonalize it (MuonScratchSize).
#ifndef WORKER_TRAINING_RANK_TRAINER_H_
#define WORKER_TRAINING_RANK_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"
#include "worker/collective/communicator.h"
#include "worker/inner_trainer.h"
#include "worker/model/ops.h"
#include "worker/training/gradient_source.h"

namespace causeway {

// For use by one thread.
class RankTrainer {
 public:
  virtual ~RankTrainer() = default;

  // All parameters, in the memory of RankTrainerOptions.ops. Every rank writes
  // the same values before the first step, and then calls ParametersWritten.
  virtual absl::Span<float> parameters() = 0;
  virtual void ParametersWritten() = 0;

  // Between steps: this rank's shard of the committed parameters, in fp32, in
  // the memory of RankTrainerOptions.ops. Step may move it.
  virtual const Slice& shard() const = 0;
  virtual absl::Span<float> master() = 0;
  // All ranks call it together after masters have changed. Keeps the
  // accumulated gradients. Errors are those of Communicator.
  virtual absl::Status MastersChanged() = 0;

  // Between steps: scratch space like parameters(), in the same memory, which
  // the next step overwrites.
  virtual absl::Span<float> scratch() = 0;

  // Makes one inner step, number `run_step` (from 1).
  //   OUT_OF_RANGE  Loss or gradient is not finite, on every rank.
  //   otherwise     See Communicator and GradientSource; the trainer must not
  //                 be used afterwards.
  virtual absl::StatusOr<InnerStepResult> Step(uint64_t run_step) = 0;

  // All ranks call each together. Save writes the state of all ranks on rank 0,
  // between steps; Restore continues from it before the first step, and takes
  // from the other ranks' `state` only its numbers. See InnerTrainer.
  virtual absl::Status Save(TrainerState& state) = 0;
  virtual absl::Status Restore(TrainerState state) = 0;
};

// Returns whether a rank should compute another micro-batch before it joins the
// next communication. `count` is the number of micro-batches since the last
// communication, and `share` the rank's share of the batch. `communicating` is
// true while the current communication is unfinished, but only up to half of
// the micro-batches that count in a step (kMostBatchesPerStep).
using AccumulationRule =
    std::function<bool(int64_t count, int64_t share, bool communicating)>;

// This rule computes the share, at least one micro-batch, and more while
// communication lasts.
bool AccumulateWhileCommunicating(int64_t count, int64_t share,
                                  bool communicating);
// This rule computes the share, at least one micro-batch
// (training.fixed_micro_batches).
bool AccumulateShare(int64_t count, int64_t share, bool communicating);

// Everything pointed to must outlive the trainer.
struct RankTrainerOptions {
  v1::TrainingConfig training;
  const ModelLayout* layout = nullptr;
  Communicator* communicator = nullptr;
  GradientSource* gradients = nullptr;
  // The memory and arithmetic of the thread that computes gradients.
  Ops* ops = nullptr;
  // The same for the thread that communicates, on the same device; not used by
  // DDP.
  Ops* communication_ops = nullptr;
  AccumulationRule accumulate = AccumulateWhileCommunicating;
  // Measures the time of communication.
  Clock now;
};

// Returns the bytes that a trainer needs, without its GradientSource, on the
// rank that needs most.
int64_t RankTrainerBytes(const v1::TrainingConfig& training,
                         const ModelLayout& layout, int ranks);

// Makes a trainer for training.inner_algorithm, with all parameters zero.
//   INVALID_ARGUMENT    The batch cannot be divided among the ranks.
//   RESOURCE_EXHAUSTED  Out of memory.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeRankTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_TRAINER_H_
