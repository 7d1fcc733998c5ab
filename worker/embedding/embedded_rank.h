// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island with a foreign training loop: its tensors and its part
// of the replica. Rank 0 leads (worker/replica/orders.h).
//
//   rank 0                              other ranks
//   ASSIGN_OR_RETURN(auto rank, EmbeddedRank::Create(...));
//   rank->ShareParameters(parameters);  rank->Follow(train, free, saved);
//   rank->MakeReplica(joined);
//   rank->BeginStep(1);                 (calls train(1))
//   ...
//   rank.reset();                       (Follow returns)
//
// The replica's shards are ranges of the model as usual; TensorExchange moves
// values between them and the tensors. A single rank with fp32 tensors on a GPU
// needs no copies: the device's kernels work on the tensors themselves.
#ifndef WORKER_EMBEDDING_EMBEDDED_RANK_H_
#define WORKER_EMBEDDING_EMBEDDED_RANK_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/coordinator.pb.h"
#include "worker/embedding/local_tensors.h"
#include "worker/embedding/tensor_exchange.h"
#include "worker/inner_trainer.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/orders.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// For use by one thread.
class EmbeddedRank : public InnerTrainer {
 public:
  // Pseudo-steps: the run is finished, or the island has left it.
  static constexpr uint64_t kFinished = 0;
  static constexpr uint64_t kLeft = std::numeric_limits<uint64_t>::max();

  // All ranks call it together. `tensors` outlives the object; the tensors of
  // all ranks must cover the model. See Orders for `pulse` and `on_failure`.
  //   INVALID_ARGUMENT  A tensor is on no rank. Other errors are those of a
  //                     Communicator.
  static absl::StatusOr<std::unique_ptr<EmbeddedRank>> Create(
      ModelLayout layout, LocalTensors* tensors,
      RankCommunicators communicators, absl::Duration pulse,
      std::function<void(const absl::Status&)> on_failure = nullptr);

  // The following are for rank 0. After an error of any rank the object must
  // not be used.

  // Writes the whole model's `parameters` to the tensors of all ranks.
  absl::Status ShareParameters(std::vector<float> parameters);
  // Call after ShareParameters.
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override;
  absl::Status Save(TrainerState& state) override;
  absl::Status Restore(TrainerState state) override {
    return ShareParameters(std::move(state.parameters));
  }
  // Lets the other ranks train a step, or tells them by a pseudo-step that
  // there is none.
  absl::Status BeginStep(uint64_t run_step);
  // UNIMPLEMENTED: the training loop makes the steps.
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override;

  // Ends the island on all ranks, for the reason in `status`. Thread-safe.
  void Fail(const absl::Status& status);
  // Returns the error that has ended the island on all ranks, if any.
  // Thread-safe.
  absl::Status failure() const { return orders_.failure(); }

  // On the other ranks: carries out rank 0's orders until it ends. Calls
  // `train` for each step and `free` before each order that uses the tensors;
  // both return once the tensors are free. Calls `saved` after reading a state
  // from the tensors.
  absl::Status Follow(absl::FunctionRef<absl::Status(uint64_t run_step)> train,
                      absl::FunctionRef<absl::Status()> free,
                      absl::FunctionRef<void()> saved);
  // Returns whether rank 0 has given an order for training that this rank has
  // not begun. Thread-safe.
  bool is_behind() const { return orders_.is_behind(); }

 private:
  EmbeddedRank(ModelLayout layout, LocalTensors* tensors,
               RankCommunicators communicators, absl::Duration pulse,
               std::function<void(const absl::Status&)> on_failure);

  int rank() const { return orders_.rank(); }
  int size() const { return orders_.size(); }
  Communicator* communicator() const { return orders_.training(); }
  Slice Shard(int rank) const {
    return communicator()->shard(layout_.size, rank);
  }

  // All ranks call each of these together; ranks other than 0 pass empty
  // arguments.
  absl::Status ExchangeSlices();
  absl::Status CheckWhole() const;
  absl::Status WriteParameters(std::vector<float> parameters);
  absl::Status MakeOwnReplica(std::string joined);
  // Reads the whole model into rank 0's argument.
  absl::Status ReadParameters(std::vector<float>& parameters);

  // Makes a rank's part of a fragment. Its first anchor is in parameters_.
  absl::StatusOr<std::unique_ptr<FragmentPart>> MakePart(
      const FragmentMap& map, uint32_t fragment, const FragmentShare& share,
      const ReplicaOptions& options);

  const ModelLayout layout_;
  LocalTensors* const tensors_;
  Orders orders_;
  SnapshotPool snapshots_;
  // The values that each rank trains.
  std::vector<Slices> trained_;
  // The parameters of the whole model, until they are the replica's anchors.
  std::vector<float> parameters_;
  std::unique_ptr<ReplicaRank> replica_;
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_EMBEDDED_RANK_H_
