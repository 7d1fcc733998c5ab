// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) over the ranks
// of an island, each with the moments of its own shard (ZeRO-1, Rajbhandari et
// al. 2020). The gradient is the mean over all micro-batches of all ranks,
// however many each has processed, and is clipped by the norm of that mean, as
// torch.nn.utils.clip_grad_norm_ does. Weight decay applies to tensors of two
// dimensions. One pass over memory does all of it.
//
//   // gradients: this rank's sum over its micro-batches, the whole vector.
//   ASSIGN_OR_RETURN(auto reduced, optimizer->Reduce(own, gradients));
//   optimizer->Step(rate, reduced, gradients, master);
//   // master: this rank's shard of the parameters; then all-gather.
#ifndef WORKER_OPTIMIZER_SHARDED_ADAMW_H_
#define WORKER_OPTIMIZER_SHARDED_ADAMW_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model_layout.h"
#include "common/thread_pool.h"
#include "proto/run_config.pb.h"
#include "worker/collective/communicator.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/optimizer/adamw_state.h"

namespace causeway {

// The micro-batches that one rank has accumulated.
struct MicroBatches {
  int64_t count = 0;
  // The sum of their mean losses.
  double loss = 0;
};

// The facts about the gradient that the ranks have accumulated together.
struct ReducedGradient {
  // The number of micro-batches by rank, and the sum of these numbers.
  std::vector<int64_t> rank_micro_batches;
  int64_t micro_batches = 0;
  // The mean over the micro-batches.
  double loss = 0;
  // The norm of the mean gradient.
  double gradient_norm = 0;
};

// Only the thread that uses `ops` may use it.
class ShardedAdamW {
 public:
  // Creates the optimizer of this rank. `communicator` and `ops` outlive it.
  //   RESOURCE_EXHAUSTED  no memory for the moments of the shard (8 bytes per
  //                       value).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ShardedAdamW>> Create(
      const v1::TrainingConfig& config, const ModelLayout& layout,
      Communicator* communicator, Ops* ops);

  // Returns this rank's shard of the whole vector.
  const Slice& shard() const { return shard_; }

  // Sums the gradients of all ranks. Afterwards gradients[shard] holds the sum;
  // the rest is unchanged. At least one rank must have a micro-batch.
  //   OUT_OF_RANGE  loss or gradient is not finite: training has diverged.
  //   else          as Communicator and Ops::Synchronize.
  absl::StatusOr<ReducedGradient> Reduce(const MicroBatches& own,
                                         absl::Span<float> gradients);

  // In Step and Estimate, `gradients` is the whole vector after Reduce, of
  // which only the shard is read; `master` and `estimate` are the shard.

  // Updates `master` and the moments.
  void Step(double learning_rate, const ReducedGradient& reduced,
            absl::Span<const float> gradients, float* master);
  // Writes the parameters that Step would compute to `estimate`, which may be
  // the shard of `gradients`. Changes nothing else and allocates no memory.
  void Estimate(double learning_rate, const ReducedGradient& reduced,
                absl::Span<const float> gradients, const float* master,
                float* estimate);

  // Save collects the moments of all shards and the number of updates; Restore
  // continues from them. All ranks must call them. Errors as Communicator and
  // Ops::Synchronize.
  absl::Status Save(AdamWState& state);
  void Restore(const AdamWState& state);

 private:
  // Adjacent values of the shard that all decay or all do not.
  struct Segment {
    int64_t offset = 0;
    int64_t size = 0;
    bool decays = false;
  };

  ShardedAdamW(const v1::TrainingConfig& config, const ModelLayout& layout,
               Communicator* communicator, Ops* ops);
  // Does what Step does or, if `estimate` is not null, what Estimate does.
  void Update(double learning_rate, const ReducedGradient& reduced,
              absl::Span<const float> gradients, float* master,
              float* estimate);

  const v1::TrainingConfig config_;
  // The number of values in the whole vector.
  const int64_t size_;
  Communicator* const communicator_;
  Ops* const ops_;
  const Slice shard_;
  std::vector<Segment> segments_;

  // The number of updates so far, on which bias correction depends.
  uint64_t updates_ = 0;
  DeviceArray<float> first_moment_;
  DeviceArray<float> second_moment_;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_SHARDED_ADAMW_H_
