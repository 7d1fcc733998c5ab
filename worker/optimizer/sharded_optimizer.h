// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizer that training.optimizer names, over the ranks of an island,
// each with the state of its own shard (ZeRO-1, Rajbhandari et al. 2020): AdamW
// with decoupled weight decay (Loshchilov & Hutter 2019), and Muon for the
// matrices that are its own (worker/optimizer/muon.h). The gradient is the mean
// over all micro-batches of all ranks, however many each has processed, and is
// clipped by the norm of that mean, as torch.nn.utils.clip_grad_norm_ does.
// Weight decay applies to tensors of two dimensions. AdamW is one pass over
// memory.
//
//   // gradients: this rank's sum over its micro-batches, the whole vector.
//   ASSIGN_OR_RETURN(auto reduced, optimizer->Reduce(own, gradients));
//   optimizer->Step(rate, reduced, gradients, master);
//   // master: this rank's shard of the parameters; then all-gather.
#ifndef WORKER_OPTIMIZER_SHARDED_OPTIMIZER_H_
#define WORKER_OPTIMIZER_SHARDED_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"
#include "worker/collective/communicator.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/optimizer/muon.h"
#include "worker/optimizer/optimizer_state.h"

namespace causeway {

// The micro-batches that one rank has accumulated.
struct MicroBatches {
  int64_t count = 0;
  // The sum of the losses of their targets, and the number of these.
  double loss = 0;
  int64_t targets = 0;
};

// Facts about the gradient of all ranks together.
struct ReducedGradient {
  // The number of micro-batches by rank, and the sum of these numbers.
  std::vector<int64_t> rank_micro_batches;
  int64_t micro_batches = 0;
  // The mean over the targets; NaN if there are none.
  double loss = 0;
  // The norm of the mean gradient.
  double gradient_norm = 0;
};

// Returns the most bytes that a rank needs for the optimizer, and for `vectors`
// fp32 vectors of the size of its shard.
int64_t ShardBytes(const v1::TrainingConfig& config, const ModelLayout& layout,
                   int ranks, int64_t vectors);

// Only the thread that uses `ops` may use it.
class ShardedOptimizer {
 public:
  // Creates the optimizer of this rank. `communicator` and `ops` outlive it.
  // With Muon, the communicator divides vectors of the model's size among the
  // owners of matrices from now on (worker/optimizer/owners.h).
  //   RESOURCE_EXHAUSTED  no memory for the state of the shard (8 bytes per
  //                       value, 4 in matrices of Muon), or for what Muon needs
  //                       (MuonScratchSize).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(
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

  // Step and Estimate read only the shard of `gradients`, which is the whole
  // vector after Reduce; `master` and `estimate` are the shard.

  // Updates `master` and the state.
  void Step(double learning_rate, const ReducedGradient& reduced,
            absl::Span<const float> gradients, float* master);
  // Writes the parameters that Step would compute to `estimate`, which may be
  // the shard of `gradients`. Changes nothing else and allocates no memory.
  void Estimate(double learning_rate, const ReducedGradient& reduced,
                absl::Span<const float> gradients, const float* master,
                float* estimate);

  // Save collects the state of all shards on rank 0, and leaves the moments
  // unspecified elsewhere; Restore continues from such a state. All ranks must
  // call them. Errors as Communicator and Ops::Synchronize.
  absl::Status Save(OptimizerState& state);
  absl::Status Restore(OptimizerState state);

 private:
  // Adjacent values of the shard that AdamW updates, either all with decay or
  // all without.
  struct Segment {
    int64_t offset = 0;
    int64_t size = 0;
    bool decays = false;
    // The index of their first value in second_moment_.
    int64_t second_offset = 0;
  };
  // A matrix in the shard that Muon updates.
  struct MuonMatrix {
    int64_t offset = 0;
    int64_t rows = 0;
    int64_t columns = 0;
  };

  ShardedOptimizer(const v1::TrainingConfig& config, const ModelLayout& layout,
                   Communicator* communicator, Ops* ops);
  int64_t second_moments() const {
    return segments_.empty()
               ? 0
               : segments_.back().second_offset + segments_.back().size;
  }
  // Does what Step does or, if `estimate` is not null, what Estimate does.
  void Update(double learning_rate, const ReducedGradient& reduced,
              absl::Span<const float> gradients, float* master,
              float* estimate);

  const v1::TrainingConfig config_;
  const ModelLayout layout_;
  Communicator* const communicator_;
  Ops* const ops_;
  const Slice shard_;
  std::vector<Segment> segments_;
  std::vector<MuonMatrix> matrices_;
  // Null if Muon updates no matrix of the shard.
  std::unique_ptr<Muon> muon_;

  // The number of updates so far, on which bias correction depends.
  uint64_t updates_ = 0;
  // AdamW's first moment or Muon's momentum of the whole shard.
  DeviceArray<float> first_moment_;
  // AdamW's second moment of the segments, one after the other.
  DeviceArray<float> second_moment_;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_SHARDED_OPTIMIZER_H_
