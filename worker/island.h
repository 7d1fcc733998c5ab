// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One island from join to leave: takes the run's configuration and parameters
// from the coordinator, trains, and carries out what the outer loop
// (worker/outer_loop/outer_loop.h) orders the trainer to do.
//
//   Island island(options, client);
//   absl::Status status = island.Run();   // on this thread
//   island.RequestLeave("pre-emption");   // from another: in good order
//   island.Stop();                        // or at once
#ifndef WORKER_ISLAND_H_
#define WORKER_ISLAND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/island_checkpoint.h"
#include "worker/replica/fragment_replica.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_actor.h"
#include "worker/sync/shared_outer_loop.h"
#include "worker/training_progress.h"

namespace causeway {

// Makes the trainer of an island, once it knows the run and its shard, with
// `parameters` to start from.
using TrainerFactory =
    std::function<absl::StatusOr<std::unique_ptr<InnerTrainer>>(
        const v1::JoinResponse& joined, std::vector<float> parameters)>;

class Island {
 public:
  struct Options {
    v1::JoinRequest join;
    TrainerFactory make_trainer;
    // tau of this island, instead of the run's overlap_steps: what its own link
    // needs. Less than the run's inner_steps_per_round.
    std::optional<uint32_t> overlap_steps;
    // Where the island keeps its checkpoints; outlives it. Null for none.
    IslandCheckpointStore* checkpoints = nullptr;
    // Inner steps between two checkpoints; at least 1.
    uint64_t checkpoint_steps = 1;
    // What `checkpoints` has, if anything: the island goes on from it if the
    // run has not left it too far behind. Its values are moved away.
    std::shared_ptr<IslandState> resume;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
    Clock now;
    // What an island that leaves takes at most to hand in what it has trained.
    absl::Duration leave_timeout = absl::Seconds(30);
    // How often training progress is logged.
    absl::Duration log_interval = absl::Seconds(5);
  };

  // `client` outlives the island.
  Island(Options options, CoordinatorClient* client);

  // Until the run is finished (OK), or the island has left because it was asked
  // to by RequestLeave, Stop or an operator (CANCELLED). OUT_OF_RANGE: its
  // replica has diverged; a new Island, with another instance_id, may start
  // from the run's parameters. Else why the island cannot take part.
  absl::Status Run();

  // Makes Run end the step under way, hand in what was trained as partial
  // contributions, for at most leave_timeout, and return. Any thread.
  void RequestLeave(absl::string_view reason);

  // Makes Run return soon, with nothing handed in. Any thread, once.
  void Stop();

 private:
  // Trains until the outer loop ends; returns its last word.
  absl::Status Train();
  // Each carries out an action and tells the loop what came of it; an error
  // ends the island.
  absl::Status Do(const action::Wait&) { return absl::OkStatus(); }
  absl::Status Do(const action::End&) { return absl::OkStatus(); }
  absl::Status Do(const action::FetchParameters& fetch);
  absl::Status Do(const action::Begin& begin);
  absl::Status Do(const action::Train& train);
  absl::Status Do(const action::TakeSnapshot& snapshot);
  absl::Status Do(const action::Apply& apply);
  absl::Status Do(const action::Save& save);

  // Makes joined_ and map_, once the island has joined.
  absl::Status TakeUpRun();
  // Puts version 0 of the fragments that begin with it into parameters_.
  absl::Status MakeInitialParameters(
      const std::vector<v1::FragmentHead>& heads);
  void Leave(const absl::Status& status);

  const Options options_;
  CoordinatorClient* const client_;
  SharedOuterLoop loop_;
  TrainingProgress progress_;

  // For the training thread. What the coordinator answered to the join, with
  // the island's own overlap_steps.
  std::optional<v1::JoinResponse> joined_;
  std::optional<FragmentMap> map_;
  // The whole model, until the trainer has it.
  std::vector<float> parameters_;
  ParametersDownload download_;
  std::unique_ptr<InnerTrainer> trainer_;
  std::vector<std::unique_ptr<FragmentReplica>> replica_;
  std::vector<std::unique_ptr<FragmentActor>> actors_;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_H_
