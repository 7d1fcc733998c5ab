// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One island from join to leave: takes the run's configuration and parameters
// from the coordinator, trains, and keeps the outer loop going.
//
//   Island island(options, client);
//   absl::Status status = island.Run();   // on this thread
//   island.RequestLeave("pre-emption");   // from another: in good order
//   island.Stop();                        // or at once
#ifndef WORKER_ISLAND_H_
#define WORKER_ISLAND_H_

#include <atomic>
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
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_synchronizer.h"
#include "worker/sync/island_session.h"
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
    // Of this island; outlives it. Null for none.
    IslandCheckpointStore* checkpoints = nullptr;
    // Inner steps between two checkpoints; at least 1.
    uint64_t checkpoint_steps = 1;
    // What `checkpoints` has, if anything: the island goes on from it if the
    // run has not left it too far behind, and empties it.
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
  // What the island is to go on from; none if there is nothing, or the run has
  // moved on too far. FAILED_PRECONDITION if it is not this island's of this
  // run, or the run allows no checkpoints.
  absl::StatusOr<std::optional<IslandState>> TakeResume(
      const v1::JoinResponse& joined);
  // Keeps a checkpoint of `step`, if it is time for one.
  absl::Status MaybeSave(uint64_t step, const v1::JoinResponse& joined,
                         const FragmentMap& map, InnerTrainer& trainer,
                         const FragmentSynchronizer& synchronizer);
  // The model at the joined heads: made from the seed, or downloaded.
  absl::StatusOr<std::vector<float>> StartingParameters(
      v1::JoinResponse& joined, const FragmentMap& map);
  absl::Status Download(const v1::JoinResponse& joined, const FragmentMap& map,
                        std::vector<float>& parameters);
  // Until the coordinator says that the run goes.
  absl::Status AwaitStart();
  absl::Status Train(const v1::JoinResponse& joined, const FragmentMap& map,
                     uint64_t first_step, InnerTrainer& trainer,
                     FragmentSynchronizer& synchronizer);
  // While the run is paused; OK if training is to go on.
  absl::Status AwaitResumption();
  // What Train returns when the island is to leave.
  absl::Status HandIn(FragmentSynchronizer& synchronizer);
  void Leave(const absl::Status& status);

  const Options options_;
  CoordinatorClient* const client_;
  TrainingProgress progress_;
  IslandSession session_;
  std::atomic<bool> training_ = false;
  // For the training thread: the step of the last checkpoint of this process.
  std::optional<uint64_t> saved_step_;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_H_
