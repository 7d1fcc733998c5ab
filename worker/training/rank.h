// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island with all it needs to train: model, data, optimizer and
// its place in the communicator. Rank 0 leads: it alone talks to the outer
// loop, and tells the others before each step what comes next.
//
//   rank 0                              the others
//   ASSIGN_OR_RETURN(auto rank, Rank::Create(options, communicator));
//   rank->ShareParameters();            rank->Follow();
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
    Clock now;
  };

  // Errors of MakeRankTrainer and MakeTransformerGradients; the other ranks are
  // told.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Rank>> Create(
      const Options& options, std::unique_ptr<Communicator> communicator);

  const Communicator& communicator() const { return *communicator_; }

  // The parameters between steps, in host memory; see RankTrainer. On a GPU
  // they are fetched from it after a step, and ShareParameters brings changes
  // there.
  absl::Span<float> parameters();

  // On rank 0. Errors as RankTrainer::Step; the other ranks fail, too, and the
  // object is of no use afterwards.

  // Makes its parameters those of every rank: at first, and after a change.
  absl::Status ShareParameters();
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step);
  // Shows the others that it lives, so that they go on waiting: to be called
  // more often than the communicator's time limit.
  absl::Status ShowLife();
  // The state of the trainers of all ranks, and to go on from one.
  absl::Status Save(TrainerState& state);
  absl::Status Restore(TrainerState state);
  // Lets the others go.
  absl::Status End();

  // On the others: does what rank 0 says until it ends.
  absl::Status Follow();

 private:
  struct Order;

  Rank(const Options& options, std::unique_ptr<Communicator> communicator);
  absl::Status Allocate(const Options& options);
  // From rank 0 to all.
  absl::Status Exchange(Order& order);
  absl::Status ExchangeParameters();
  absl::Status ExchangeState(TrainerState& state);
  absl::StatusOr<InnerStepResult> StepOrAbort(uint64_t run_step);
  // With all ranks: what the times of their communication say.
  absl::Status Diagnose();

  const Device device_;
  const ModelLayout layout_;
  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Ops> communication_ops_;
  std::unique_ptr<GradientSource> gradients_;
  std::unique_ptr<RankTrainer> trainer_;
  // The parameters of a GPU, and whether it has newer ones.
  std::vector<float> host_parameters_;
  bool device_is_newer_ = true;

  const Clock now_;
  // On rank 0.
  absl::Time diagnosed_at_;
  v1::RankTrouble trouble_;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_RANK_H_
