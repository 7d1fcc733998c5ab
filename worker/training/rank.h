// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island with its model, data, optimizer and communicators. Rank
// 0 leads: only it talks to the outer loop, and it gives all ranks their orders
// (worker/replica/orders.h).
//
//   rank 0                              other ranks
//   ASSIGN_OR_RETURN(auto rank, Rank::Create(options, communicators));
//   rank->ShareParameters(parameters);  rank->Follow();
//   rank->MakeReplica(joined);
//   rank->Step(1);
//   ...
//   rank.reset();                       (Follow returns)
#ifndef WORKER_TRAINING_RANK_H_
#define WORKER_TRAINING_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/tensors/model_layout.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "worker/collective/collective_diagnosis.h"
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
#include "worker/training/memory_advice.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

// For use by one thread.
class Rank : public InnerTrainer {
 public:
  struct Options {
    // The resolved configuration.
    v1::RunConfig config;
    std::shared_ptr<const Dataset> dataset;
    // This is dataset->Digest(), which reads much of the data.
    std::string data_digest;
    // The island's shard of the data, and its order (Sampler).
    uint32_t shard = 0;
    uint32_t data_order = 0;
    Device device;
    // The threads that compute gradients, on the CPU.
    int threads = 1;
    // For a GPU; see PartDevice::Options. By default anchors are on the GPU if
    // a quarter of its free memory then stays free.
    std::optional<bool> anchors_on_device;
    // Is true if other ranks of this process use other GPUs. It becomes
    // PartDevice::Options::reserves.
    bool beside_other_gpus = false;
    // The period at which rank 0 shows that it is alive; see Orders.
    absl::Duration pulse = absl::Seconds(15);
    Clock now;
    // Called on rank 0, between steps, for each diagnosis. May be null.
    std::function<void(const CollectiveDiagnosis&)> diagnosed;
    // An object that must outlive rank 0, such as the other ranks of its
    // process.
    std::shared_ptr<void> others;
  };

  // Errors are those of MakeRankTrainer and MakeTransformerGradients, on all
  // ranks.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Rank>> Create(
      const Options& options, RankCommunicators communicators);
  ~Rank() override;

  int rank() const { return orders_.rank(); }
  int size() const { return orders_.size(); }

  // The following are for rank 0. After an error of any rank the object must
  // not be used.

  // Gives the whole model's `parameters` to every rank. Call before the first
  // step.
  absl::Status ShareParameters(std::vector<float> parameters);
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override;
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override;
  absl::Status Save(TrainerState& state) override;
  absl::Status Restore(TrainerState state) override;
  absl::StatusOr<ValidationLoss> Validate(std::vector<float> parameters,
                                          uint32_t max_sequences) override;
  std::string DataDigest() const override { return data_digest_; }

  // On the other ranks: carries out rank 0's orders until it ends.
  absl::Status Follow();

 private:
  Rank(const Options& options, RankCommunicators communicators);
  absl::Status AllocateOrAdvise(const Options& options);
  absl::Status Allocate(const Options& options);
  RankShare Share(bool anchors_on_device) const;
  // Returns `status`, with MemoryAdvice if the device's memory did not suffice.
  absl::Status WithAdvice(absl::Status status) const;
  Communicator* communicator() const { return orders_.training(); }

  // All ranks call each of these together to carry out an order. Ranks other
  // than 0 pass empty arguments and get unspecified results.
  absl::Status CarryOut(const Order& order);
  absl::Status ExchangeParameters(std::vector<float> parameters);
  // Copies rank 0's vector to `to`, in the memory of ops_, on all ranks.
  absl::Status ExchangeVector(std::vector<float> values, float* to);
  // Returns an error on the ranks that read other data than rank 0.
  absl::Status CheckData();
  absl::Status MakeOwnReplica(std::string joined);
  absl::StatusOr<InnerStepResult> MakeStep(const Order& order);
  absl::StatusOr<ValidationLoss> Measure(std::vector<float> parameters,
                                         uint32_t max_sequences);
  absl::Status SaveOwn(TrainerState& state);
  absl::Status RestoreOwn(TrainerState state);
  // Sends bytes from rank 0 to all ranks.
  absl::Status ExchangeBytes(absl::Span<char> bytes);
  absl::Status Diagnose();

  const std::shared_ptr<void> others_;
  const Device device_;
  const v1::RunConfig config_;
  const ModelLayout layout_;
  const std::shared_ptr<const Dataset> dataset_;
  const std::string data_digest_;
  Orders orders_;
  std::unique_ptr<Ops> ops_;
  // The free bytes of device memory before this rank took any.
  int64_t free_bytes_ = 0;
  std::unique_ptr<Ops> communication_ops_;
  std::unique_ptr<GradientSource> gradients_;
  std::unique_ptr<RankTrainer> trainer_;
  // The snapshots of parts of the replica in host memory.
  SnapshotPool snapshots_;
  bool anchors_on_device_ = false;
  const bool beside_other_gpus_;
  // The device of parts on a GPU; null if there are none, and before
  // MakeReplica.
  std::unique_ptr<PartDevice> part_device_;
  // Is true if the masters have changed since the last step.
  bool changed_ = false;
  // Null before MakeReplica.
  std::unique_ptr<ReplicaRank> replica_;

  const Clock now_;
  const std::function<void(const CollectiveDiagnosis&)> diagnosed_;
  absl::Time diagnosed_at_;
  int undiagnosed_steps_ = 0;
  v1::RankTrouble trouble_;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_H_
