// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's side of the outer loop: after each inner step it sends the
// fragments that are due, applies the updates that have come, and waits only
// where the schedule says that training may not run ahead any further
// (outer_optimizer/sync_schedule.h).
//
// Training is held up by: one copy of a fragment when it is sent (two passes
// over it more with eager updates), and one pass over it when its update is
// applied. The links' threads do the rest.
//
//   while (!outcome.finished) {
//     tokens = TrainOneStep(step, parameters);
//     ASSIGN_OR_RETURN(outcome, sync.AfterStep(step + 1, tokens, parameters));
//     step = outcome.step;
//   }
//
// For one training thread.
#ifndef WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_
#define WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "outer_optimizer/eager_update.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_link.h"
#include "worker/sync/island_session.h"
#include "worker/sync/snapshot_pool.h"

namespace causeway {

class FragmentSynchronizer {
 public:
  struct Options {
    v1::SynchronizationConfig config;
    // For eager updates.
    v1::OuterOptimizerConfig outer_optimizer;
    FragmentMap map;
    // Its overlap_steps are the island's own and count, not those of `config`.
    SyncSchedule schedule;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
    // Of stochastic rounding.
    uint64_t rounding_seed = 0;
    // By fragment, where the island begins with a checkpoint; else empty.
    std::vector<v1::IslandCheckpoint::Fragment> restored;
    // For measuring waits.
    Clock now;
  };

  // `parameters` are the whole model's anchors, at `heads`. client and session
  // outlive the synchronizer.
  FragmentSynchronizer(Options options,
                       absl::Span<const v1::FragmentHead> heads,
                       absl::Span<const float> parameters,
                       CoordinatorClient* client, IslandSession* session);

  struct Outcome {
    // The run step to go on from: `step`, or further on if the island had
    // fallen behind the run.
    uint64_t step = 0;
    // Every fragment has its last version.
    bool finished = false;
  };

  // After inner step number `step` (from 1) has trained `tokens` on
  // `parameters`; 0 tokens if the island passed over the step.
  //   CANCELLED  the session was stopped, or the island is to leave.
  //   else       why the island cannot be part of the run any more.
  absl::StatusOr<Outcome> AfterStep(uint64_t step, uint64_t tokens,
                                    absl::Span<float> parameters);

  // Whether a fragment that is sent at `step` has no training in it yet.
  bool MustTrain(uint64_t step) const;

  // Before the island leaves: hands in what no contribution contains yet, as
  // partial contributions, and waits until the coordinator has accepted it all.
  //   DEADLINE_EXCEEDED  it took longer; the rest is lost with the island.
  //   CANCELLED          the session was stopped.
  //   else               as AfterStep.
  absl::Status HandIn(absl::Span<float> parameters, absl::Time deadline);

  // For a checkpoint, between steps: adds every fragment to `position` and puts
  // its anchor into `anchors`, which has the whole model's size.
  void Save(v1::IslandCheckpoint& position, absl::Span<float> anchors) const;

  // Whether parameters were changed since the last call.
  bool TakeChanged() { return std::exchange(changed_, false); }

  // Of updates of own contributions, up to now. For the training thread.
  struct Lateness {
    // That had not come at the step at which they were meant to be applied.
    uint64_t updates = 0;
    // Inner steps trained beyond that step.
    uint64_t steps = 0;
  };
  Lateness lateness() const { return lateness_; }

  // Time training stood still for synchronization, a wait that is under way
  // included. Thread-safe.
  absl::Duration waited() const;

 private:
  // Training since the fragment's anchor that no merged contribution contains.
  struct Window {
    uint64_t tokens = 0;
    uint64_t inner_steps = 0;
  };
  struct Fragment {
    std::unique_ptr<FragmentLink> link;
    // With eager updates, where updates come after their send.
    std::optional<EagerUpdate> eager;
    Window window;
    // The part of `window` that is in the contribution in flight.
    Window sent;
    // The same of a contribution that was in flight when the checkpoint was
    // made with which the island began.
    Window forgotten;
    // When its update is to be applied.
    uint64_t apply_step = 0;
    // That step has come, and the update had not.
    bool late = false;
  };

  void Send(uint32_t fragment, absl::Span<const float> parameters,
            bool partial = false);
  // HandIn for one fragment, as far as it goes; true once it is done.
  absl::StatusOr<bool> HandInFragment(uint32_t fragment, const IslandView& view,
                                      absl::Span<float> parameters);
  // Whether the fragment's update may not be waited for any longer, after
  // `step`. Books what is late.
  bool IsOverdue(Fragment& fragment, uint64_t step);
  // Waits for the fragment's next update and applies it. False if the run is
  // over and there is none to come.
  absl::StatusOr<bool> AwaitAndApply(uint32_t fragment,
                                     absl::Span<float> parameters);
  void Apply(uint32_t fragment, absl::Span<float> parameters);
  // Corrects the step that was made eagerly at the send; false if there was
  // none. Learns from the update in either case.
  bool CorrectEagerStep(uint32_t fragment, const FragmentUpdate& update,
                        absl::Span<float> parameters);
  void MixOrRebase(uint32_t fragment, const FragmentUpdate& update,
                   absl::Span<float> parameters);
  // At the last step: until every fragment has its last version.
  absl::StatusOr<Outcome> Finish(absl::Span<float> parameters);
  uint64_t NewestVersion(const IslandView& view, uint32_t fragment) const;
  bool RunIsOver(const IslandView& view) const;

  const Options options_;
  IslandSession* const session_;
  SnapshotPool snapshots_;
  std::vector<Fragment> fragments_;
  Lateness lateness_;
  // Whether an update was applied as a rebase since the last AfterStep.
  bool rebased_ = false;
  bool changed_ = false;
  mutable absl::Mutex wait_mu_;
  absl::Duration waited_ ABSL_GUARDED_BY(wait_mu_);
  // Of the wait under way.
  absl::Time waiting_since_ ABSL_GUARDED_BY(wait_mu_) = absl::InfiniteFuture();
};

}  // namespace causeway

#endif  // WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_
