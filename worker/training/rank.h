// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island with all it needs to train: model, data, optimizer and
// its place in the communicator. Rank 0 leads: it alone talks to the outer
// loop, and tells the others before each step what comes next.
//
//   rank 0                              the others
//   ASSIGN_OR_RETURN(auto rank, Rank::Create(options, communicators));
//   rank->ShareParameters(parameters);  rank->Follow();
//   rank->MakeReplica(joined);
//   rank->Step(1);
//   ...
//   rank->End();                        (Follow returns)
#ifndef WORKER_TRAINING_RANK_H_
#define WORKER_TRAINING_RANK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "worker/collective/communicator.h"
#include "worker/data/dataset.h"
#include "worker/inner_trainer.h"
#include "worker/model/device.h"
#include "worker/model/ops.h"
#include "worker/replica/device/part_device.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"
#include "worker/training/gradient_source.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// For one thread.
class Rank {
 public:
  struct Options {
    // Resolved.
    v1::RunConfig config;
    std::shared_ptr<const Dataset> dataset;
    // Of the data, the island's.
    uint32_t shard = 0;
    Device device;
    // That compute gradients, on the CPU.
    int threads = 1;
    // On a GPU: PartDevice::Options and Transformer::Options.
    bool anchors_on_device = false;
    bool stochastic_rounding = false;
    // RankTrainerOptions.
    bool bf16_gradients = false;
    Clock now;
  };

  // Between the same ranks, for two threads at the same time.
  struct Communicators {
    std::unique_ptr<Communicator> training;
    // See ReplicaRank.
    std::unique_ptr<Communicator> replica;
  };

  // Errors of MakeRankTrainer and MakeTransformerGradients; the other ranks are
  // told.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Rank>> Create(
      const Options& options, Communicators communicators);
  ~Rank();

  const Communicator& communicator() const { return *communicator_; }

  // On rank 0. Errors as RankTrainer::Step; the other ranks fail, too, and the
  // object is of no use afterwards.

  // Makes `parameters`, the whole model's, those of every rank. Before the
  // first step.
  absl::Status ShareParameters(std::vector<float> parameters);
  // As ReplicaRank::Fragments; afterwards, before the first step. What the
  // hooks are to do is TakeSnapshot and Apply.
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined, ReplicaHooks hooks);
  // Between steps, on all ranks; see FragmentPart.
  absl::Status TakeSnapshot(uint32_t fragment, bool eager);
  absl::Status Apply(uint32_t fragment, const UpdateUse& use);
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step);
  // Shows the others that it lives, so that they go on waiting: to be called
  // more often than the communicator's time limit.
  absl::Status ShowLife();
  // The state of the trainers of all ranks, parameters included, and to go on
  // from one.
  absl::Status Save(TrainerState& state);
  absl::Status Restore(TrainerState state);
  // Lets the others go.
  absl::Status End();
  // After a failure: ends what the ranks do beside training, too. Any thread.
  void Abort(const absl::Status& reason);

  // On the others: does what rank 0 says until it ends.
  absl::Status Follow();

 private:
  struct Order;

  Rank(const Options& options, Communicators communicators);
  absl::Status AllocateOrAdvise(const Options& options);
  absl::Status Allocate(const Options& options);
  // From rank 0 to all.
  absl::Status Exchange(Order& order);
  absl::Status ExchangeBytes(absl::Span<char> bytes);
  absl::Status ExchangeParameters(std::vector<float> parameters);
  absl::Status ExchangeState(TrainerState& state);
  absl::Status FollowOrders();
  // What an order makes every rank do.
  absl::Status MakeOwnReplica(const v1::JoinResponse& joined);
  absl::Status TakeOwnSnapshot(const Order& order);
  absl::Status ApplyOwn(const Order& order);
  absl::Status SaveWithOthers(TrainerState& state);
  // The parameters of all ranks become those of the masters.
  absl::Status TakeChange();
  absl::StatusOr<InnerStepResult> StepOrAbort(uint64_t run_step);
  // With all ranks: what the times of their communication say.
  absl::Status Diagnose();

  const Device device_;
  const ModelLayout layout_;
  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<Communicator> replica_communicator_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Ops> communication_ops_;
  std::unique_ptr<GradientSource> gradients_;
  std::unique_ptr<RankTrainer> trainer_;
  // Of parts of the replica in host memory.
  SnapshotPool snapshots_;
  // Of those on a GPU; null if there is none, and before MakeReplica.
  const bool anchors_on_device_;
  std::unique_ptr<PartDevice> part_device_;
  // Whether the masters have changed since the last step, other than by it.
  bool changed_ = false;
  // Null before MakeReplica.
  std::unique_ptr<ReplicaRank> replica_;

  const Clock now_;
  // On rank 0.
  absl::Time diagnosed_at_;
  v1::RankTrouble trouble_;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_H_
