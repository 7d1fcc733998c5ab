// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inner training of one rank of an island. The ranks step together: each calls
// Step for the same run step, computes gradients on its own micro-batches, and
// after the step all hold the same parameters. How the work is arranged is the
// run's training.inner_algorithm: ddp_trainer.h, overlapped_trainer.h.
#ifndef WORKER_TRAINING_RANK_TRAINER_H_
#define WORKER_TRAINING_RANK_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "common/thread_pool.h"
#include "proto/run_config.pb.h"
#include "worker/collective/communicator.h"
#include "worker/inner_trainer.h"
#include "worker/model/ops.h"
#include "worker/training/gradient_source.h"

namespace causeway {

// For one thread.
class RankTrainer {
 public:
  virtual ~RankTrainer() = default;

  // All parameters, in the memory of RankTrainerOptions.ops: to be written
  // before the first step, alike on every rank, and followed by
  // ParametersWritten.
  virtual absl::Span<float> parameters() = 0;
  virtual void ParametersWritten() = 0;

  // Between steps: the committed parameters in fp32, of which each rank has its
  // shard, in the memory of RankTrainerOptions.ops. Step may move them.
  virtual const Slice& shard() const = 0;
  virtual absl::Span<float> master() = 0;
  // To be called on every rank after masters were changed, with the ranks
  // together. What has been accumulated for the next step is kept. Errors as of
  // Communicator.
  virtual absl::Status MastersChanged() = 0;

  // One inner step: the one that makes `run_step` steps complete (from 1).
  //   OUT_OF_RANGE  loss or gradient is not finite, on every rank.
  //   else          as Communicator and GradientSource; the trainer is of no
  //                 use afterwards.
  virtual absl::StatusOr<InnerStepResult> Step(uint64_t run_step) = 0;

  // Both on every rank: the state of all ranks, between steps, and to go on
  // from one, the same on all, before the first step. See InnerTrainer.
  virtual absl::Status Save(TrainerState& state) = 0;
  virtual void Restore(const TrainerState& state) = 0;
};

// Whether a rank should compute another micro-batch before it takes part in the
// communication that it has prepared for: it has `count` since it last did, the
// share of the batch that it owes is `share`, and `communicating` says whether
// the communication under way is unfinished.
using AccumulationRule =
    std::function<bool(int64_t count, int64_t share, bool communicating)>;

// Its share, at least one, and more while communication lasts.
bool AccumulateWhileCommunicating(int64_t count, int64_t share,
                                  bool communicating);
// Its share, at least one: training.fixed_micro_batches.
bool AccumulateShare(int64_t count, int64_t share, bool communicating);

// Everything pointed to outlives the trainer.
struct RankTrainerOptions {
  v1::TrainingConfig training;
  const ModelLayout* layout = nullptr;
  Communicator* communicator = nullptr;
  GradientSource* gradients = nullptr;
  // Memory and arithmetic of the thread that computes gradients.
  Ops* ops = nullptr;
  // The same of the thread that communicates, on the same device; unused by
  // DDP.
  Ops* communication_ops = nullptr;
  AccumulationRule accumulate = AccumulateWhileCommunicating;
  // Whether gradients are summed over micro-batches in bf16, where activations
  // are bf16.
  bool bf16_gradients = false;
  // For measuring.
  Clock now;
};

// Bytes that a rank's trainer takes for a model of `values` values, beside what
// GradientSource has; the largest shard's rank. The communicator does not
// round. `bf16_gradients`: that they are bf16.
int64_t RankTrainerBytes(const v1::TrainingConfig& training, int64_t values,
                         int ranks, bool bf16_gradients = false);

// A trainer that does what training.inner_algorithm says, with all parameters
// zero.
//   INVALID_ARGUMENT    the batch cannot be divided among the ranks.
//   RESOURCE_EXHAUSTED  memory.
absl::StatusOr<std::unique_ptr<RankTrainer>> MakeRankTrainer(
    const RankTrainerOptions& options);

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_TRAINER_H_
