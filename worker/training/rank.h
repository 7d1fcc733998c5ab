// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island with all it needs to train: model, data, optimizer and
// its place among the others. Rank 0 leads: it alone talks to the outer loop,
// and orders what all ranks do (worker/replica/orders.h).
//
//   rank 0                              the others
//   ASSIGN_OR_RETURN(auto rank, Rank::Create(options, communicators));
//   rank->ShareParameters(parameters);  rank->Follow();
//   rank->MakeReplica(joined);
//   rank->Step(1);
//   ...
//   rank.reset();                       (Follow returns)
#ifndef WORKER_TRAINING_RANK_H_
#define WORKER_TRAINING_RANK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "worker/data/dataset.h"
#include "worker/inner_trainer.h"
#include "worker/model/device.h"
#include "worker/model/ops.h"
#include "worker/replica/device/part_device.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/orders.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"
#include "worker/training/gradient_source.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// For one thread.
class Rank : public InnerTrainer {
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
    // Rank 0 shows so often that it lives; see Orders.
    absl::Duration pulse = absl::Seconds(15);
    Clock now;
    // What is to outlive rank 0: the other ranks of its process, for instance.
    std::shared_ptr<void> others;
  };

  // Errors of MakeRankTrainer and MakeTransformerGradients; the other ranks are
  // told.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Rank>> Create(
      const Options& options, RankCommunicators communicators);
  ~Rank() override;

  int rank() const { return orders_.rank(); }
  int size() const { return orders_.size(); }

  // On rank 0; after an error of any rank the object is of no use.

  // Makes `parameters`, the whole model's, those of every rank. Before the
  // first step.
  absl::Status ShareParameters(std::vector<float> parameters);
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override;
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override;
  absl::Status Save(TrainerState& state) override;
  absl::Status Restore(const TrainerState& state) override;

  // On the others: does what rank 0 orders until it ends.
  absl::Status Follow();

 private:
  Rank(const Options& options, RankCommunicators communicators);
  absl::Status AllocateOrAdvise(const Options& options);
  absl::Status Allocate(const Options& options);
  Communicator* communicator() const { return orders_.training(); }

  // What an order makes every rank do, together. What rank 0 gives is empty on
  // the others, and what they return of no use.
  absl::Status CarryOut(const Order& order);
  absl::Status ExchangeParameters(std::vector<float> parameters);
  absl::Status MakeOwnReplica(std::string joined);
  absl::StatusOr<InnerStepResult> MakeStep(const Order& order);
  absl::Status SaveOwn(TrainerState& state);
  absl::Status RestoreOwn(TrainerState state);
  // From rank 0 to all.
  absl::Status ExchangeBytes(absl::Span<char> bytes);
  // What the times of the communication say.
  absl::Status Diagnose();

  const std::shared_ptr<void> others_;
  const Device device_;
  const ModelLayout layout_;
  Orders orders_;
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
  absl::Time diagnosed_at_;
  v1::RankTrouble trouble_;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_H_
