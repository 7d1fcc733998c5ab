// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's side of the outer loop: after each inner step it sends the
// fragments that are due, applies the updates that have come, and waits only
// where the schedule says that training may not run ahead any further
// (outer_optimizer/sync_schedule.h).
//
// Training is held up by snapshots and updates of the replica
// (worker/replica); the links' threads do the rest.
//
//   while (!outcome.finished) {
//     tokens = TrainOneStep(step);
//     ASSIGN_OR_RETURN(outcome, sync.AfterStep(step + 1, tokens));
//     step = outcome.step;
//   }
//
// For one training thread.
#ifndef WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_
#define WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"
#include "worker/replica/fragment_replica.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_link.h"
#include "worker/sync/fragment_window.h"
#include "worker/sync/island_session.h"

namespace causeway {

class FragmentSynchronizer {
 public:
  struct Options {
    v1::SynchronizationConfig config;
    // Its overlap_steps are the island's own and count, not those of `config`.
    SyncSchedule schedule;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
    // By fragment, where the island begins with a checkpoint; else empty.
    std::vector<v1::IslandCheckpoint::Fragment> restored;
    // For measuring waits.
    Clock now;
  };

  // `replica` has all fragments, in order, with their anchors at `heads`.
  // client and session outlive the synchronizer.
  FragmentSynchronizer(Options options,
                       absl::Span<const v1::FragmentHead> heads,
                       std::vector<std::unique_ptr<FragmentReplica>> replica,
                       CoordinatorClient* client, IslandSession* session);

  struct Outcome {
    // The run step to go on from: `step`, or further on if the island had
    // fallen behind the run.
    uint64_t step = 0;
    // Every fragment has its last version.
    bool finished = false;
  };

  // Before a process that begins with a checkpoint trains, which stands at
  // `step`: applies the updates that it has missed. What it would train before
  // could be in one of them, as an earlier process has trained it. Errors as of
  // AfterStep.
  absl::StatusOr<Outcome> CatchUp(uint64_t step);

  // After inner step number `step` (from 1) has trained `tokens`; 0 if the
  // island passed over the step.
  //   CANCELLED  the session was stopped, or the island is to leave.
  //   else       why the island cannot be part of the run any more.
  absl::StatusOr<Outcome> AfterStep(uint64_t step, uint64_t tokens);

  // Whether a fragment that is sent at `step` has no training in it yet.
  bool MustTrain(uint64_t step) const;

  // Before the island leaves: hands in what no contribution contains yet, as
  // partial contributions, and waits until the coordinator has accepted it all.
  //   DEADLINE_EXCEEDED  it took longer; the rest is lost with the island.
  //   CANCELLED          the session was stopped.
  //   else               as AfterStep.
  absl::Status HandIn(absl::Time deadline);

  // For a checkpoint, between steps: adds every fragment to `position` and puts
  // its anchor into `anchors`, of the whole model that `map` cuts. Errors of
  // the replica.
  absl::Status Save(const FragmentMap& map, v1::IslandCheckpoint& position,
                    absl::Span<float> anchors) const;

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
  struct Fragment {
    // Outlives the link.
    std::unique_ptr<FragmentReplica> replica;
    std::unique_ptr<FragmentLink> link;
    FragmentWindow window;
    // When its update is to be applied.
    uint64_t apply_step = 0;
    // That step has come, and the update had not.
    bool late = false;
  };

  enum class Reason { kSchedule, kEnd, kLeaving };
  absl::Status Send(uint32_t fragment, Reason reason);
  // HandIn for one fragment, as far as it goes; true once it is done.
  absl::StatusOr<bool> HandInFragment(uint32_t fragment,
                                      const IslandView& view);
  // Whether the fragment's update may not be waited for any longer, after
  // `step`. Books what is late.
  bool IsOverdue(Fragment& fragment, uint64_t step);
  // Waits for the fragment's next update and applies it. False if the run is
  // over and there is none to come.
  absl::StatusOr<bool> AwaitAndApply(uint32_t fragment);
  // The same until nothing is in flight and the fragment is at its newest
  // version.
  absl::StatusOr<bool> AwaitNewest(uint32_t fragment);
  absl::Status Apply(uint32_t fragment);
  // At the last step: until every fragment has its last version, or one that is
  // to be sent has no training in it, so that the step is to be done again.
  absl::StatusOr<Outcome> Finish();
  // After step `step` and what was applied at it.
  Outcome GoOnFrom(uint64_t step);
  uint64_t NewestVersion(const IslandView& view, uint32_t fragment) const;
  bool RunIsOver(const IslandView& view) const;

  const Options options_;
  IslandSession* const session_;
  std::vector<Fragment> fragments_;
  Lateness lateness_;
  // Whether an update was applied as a rebase since the last GoOnFrom: the
  // step to go on from may be another one. So it may be after a checkpoint:
  // what was in flight when it was made, and not accepted, is to be sent again.
  bool rebased_;
  mutable absl::Mutex wait_mu_;
  absl::Duration waited_ ABSL_GUARDED_BY(wait_mu_);
  // Of the wait under way.
  absl::Time waiting_since_ ABSL_GUARDED_BY(wait_mu_) = absl::InfiniteFuture();
};

}  // namespace causeway

#endif  // WORKER_SYNC_FRAGMENT_SYNCHRONIZER_H_
