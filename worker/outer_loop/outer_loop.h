// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything that an island decides about the outer loop, from its join to its
// leave, as a deterministic state machine: events in, actions out, time passed
// in. Threads, sockets and the parameters themselves live around it
// (worker/sync/shared_outer_loop.h), so that the same rules run on real
// islands, in simulations, and under other trainers.
//
// A host has three kinds of actors (worker/outer_loop/actions.h). Each
// repeatedly asks what to do next, does it, and reports the result by an event.
// An actor that is told to wait asks again at the given time and after every
// event of any actor; Stepped, however, changes only the trainer's next action.
// This is the trainer's part:
//
//   while (true) {
//     TrainerAction action = loop.NextForTrainer(now);
//     if (auto* train = std::get_if<action::Train>(&action)) {
//       loop.Stepped(TrainOneStep(train->step));
//     } else if (auto* apply = std::get_if<action::Apply>(&action)) {
//       ... change the parameters ...
//       loop.Applied();
//     } else ...
//   }
//
// After an inner step, in this order:
//   * Updates for which no contribution of ours waits are applied at once, as
//     rebases. The update of a contribution is applied tau steps after the
//     send, so that training does not depend on the link's speed.
//   * The fragments that are due are sent, each after it has caught up with the
//     newest version.
//   * Training waits for updates that are late by more than max_overlap_steps.
//   * If the anchors are then a version of the whole model that the island was
//     asked to measure, it measures them.
// The rules of the schedule are in outer_optimizer/sync_schedule.h.
// worker/outer_loop/fragment_window.h makes each token count once.
//
// Not thread-safe.
#ifndef WORKER_OUTER_LOOP_OUTER_LOOP_H_
#define WORKER_OUTER_LOOP_OUTER_LOOP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"
#include "proto/run_config.pb.h"
#include "worker/outer_loop/actions.h"
#include "worker/outer_loop/fragment_exchange.h"
#include "worker/outer_loop/fragment_window.h"
#include "worker/outer_loop/island_membership.h"

namespace causeway {

class OuterLoop {
 public:
  struct Options {
    // Names the island and its process.
    v1::JoinRequest join;
    // The island's own tau, for its link, instead of the run's overlap_steps.
    // Less than the run's inner_steps_per_round.
    std::optional<uint32_t> overlap_steps;
    // The island's own bits per value of contributions, for its link, instead
    // of the run's ecq_bits: 0.5 to 8. Needs the uplink format ECQ, whose
    // readers need not know them.
    std::optional<double> uplink_bits;
    // The inner steps between two checkpoints; 0 for no checkpoints.
    uint64_t checkpoint_steps = 0;
    // The checkpoint, if any, from which the island continues unless the run is
    // too far ahead.
    std::optional<v1::IslandCheckpoint> resume;
    // The longest time that a leaving island takes to hand in its training.
    absl::Duration leave_timeout = absl::Seconds(30);
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
  };

  explicit OuterLoop(Options options);

  // --- What to do now. ---

  // Returns the trainer's next action. Every call returns the same action until
  // the event that answers it.
  TrainerAction NextForTrainer(absl::Time now);
  SessionAction NextForSession(absl::Time now) const {
    return membership_.Next(now);
  }
  // Requires: Begun was called, and fragment < fragments().
  FragmentAction NextForFragment(uint32_t fragment, absl::Time now) const;

  // --- Events. The session tells its events to membership(), a fragment's
  // actor to exchange(). ---

  IslandMembership& membership() { return membership_; }
  FragmentExchange& exchange(uint32_t fragment) {
    return fragments_[fragment].exchange;
  }

  // Says that the host fetches the parameters beside the trainer, which gets no
  // other action until ParametersAnswered. A host need not call it.
  void FetchStarted();
  // Report that the trainer has carried out its last action.
  void ParametersAnswered(const absl::StatusOr<v1::FragmentHead>& head,
                          absl::Time now);
  void Begun();
  // The step has trained `tokens` tokens.
  void Stepped(uint64_t tokens);
  // Says that the trainer wants the updates of everything in flight before the
  // step that it was ordered to train. Ignored if no step is ordered.
  void SettleFirst();
  void SnapshotTaken();
  void Applied();
  void Validated();
  // `saved` is false if the checkpoint could not be saved now; the next step
  // tries again.
  void Saved(bool saved);

  // Ends the island with this status of the replica or the trainer. The trainer
  // may still report its last action.
  void Failed(const absl::Status& status);
  // Asks the island to hand in its training and to leave.
  void RequestLeave(absl::string_view reason) {
    membership_.RequestLeave(reason);
  }
  // Ends everything at once; nothing is handed in.
  void RequestStop() { membership_.RequestStop(); }

  // --- Views. ---

  const IslandMembership& membership() const { return membership_; }
  // The run's configuration, with the island's own overlap_steps and ecq_bits.
  // Empty until the trainer's first action after the join.
  const v1::RunConfig& config() const { return config_; }
  // The island's own tau; 0 before the island has joined.
  uint32_t overlap_steps() const;
  // The bits per value that the next contribution aims at: the island's own,
  // the coordinator's plan for its uplink, or the run's; 0 if the format has no
  // such target.
  double uplink_bits() const;
  bool has_own_uplink_bits() const { return options_.uplink_bits.has_value(); }
  // The number of the run's inner steps that are complete.
  uint64_t step() const { return step_; }
  uint32_t fragments() const {
    return static_cast<uint32_t>(fragments_.size());
  }
  const FragmentExchange& exchange(uint32_t fragment) const {
    return fragments_[fragment].exchange;
  }
  const FragmentWindow& window(uint32_t fragment) const {
    return fragments_[fragment].window;
  }

  // Returns whether a contribution's update has not been applied yet.
  bool has_in_flight() const {
    return absl::c_any_of(fragments_, [](const Fragment& fragment) {
      return fragment.exchange.in_flight();
    });
  }

  // Returns why training stands still, or no reason if it does not.
  v1::Wait wait(absl::Time now) const;
  // Returns whether the trainer's action is a step.
  bool is_training() const {
    return ordered_.has_value() &&
           std::holds_alternative<action::Train>(*ordered_);
  }
  // Returns whether the island has left and handed in all that it has trained.
  bool has_handed_in() const { return has_handed_in_; }
  // Returns what the island is doing or waiting for, for people.
  std::string Activity() const;

  // Counts for the updates of the island's own contributions so far.
  struct Lateness {
    // The updates that had not arrived at the step at which they were due.
    uint64_t updates = 0;
    // The inner steps trained beyond that step, over all late updates.
    uint64_t steps = 0;
  };
  const Lateness& lateness() const { return lateness_; }
  // Returns how long training stood still for synchronization, including the
  // current wait.
  absl::Duration waited(absl::Time now) const;
  // Returns, between steps, a checkpoint's position without digests.
  v1::IslandCheckpoint Position() const;

 private:
  enum class Phase { kJoining, kLoading, kStarting, kTraining, kLeaving };
  struct Fragment {
    FragmentExchange exchange;
    FragmentWindow window;
    // The step after which the update of its contribution is due.
    uint64_t apply_step = 0;
    // Is true if that step came before the update.
    bool late = false;
  };
  // The snapshot that was ordered last.
  struct Snapshot {
    uint32_t fragment = 0;
    bool partial = false;
    uint64_t apply_step = 0;
  };

  // --- outer_loop.cc: from the join to the first step, and the end. ---

  TrainerAction Decide(absl::Time now);
  absl::Status Failure() const;
  // Decides whether the island begins with its checkpoint or with the run's
  // parameters.
  absl::Status StartLoading();
  TrainerAction Load(absl::Time now);
  TrainerAction LeaveInGoodOrder(absl::Time now);
  // Returns the next action that hands in a fragment, Wait while other actors
  // must act first, and none once the fragment is handed in.
  std::optional<TrainerAction> HandIn(uint32_t fragment);
  TrainerAction End(absl::Status status);
  // `fragment` is the one whose update is awaited, if any.
  action::Wait WaitFor(v1::Wait::Reason reason,
                       std::optional<uint32_t> fragment = std::nullopt) const;
  void BookWait(const TrainerAction& action, absl::Time now);

  // --- outer_loop_training.cc: training. ---

  TrainerAction TrainAndSynchronize();
  void StartSynchronizing();
  // Returns the next action after a step; none once training may continue.
  std::optional<TrainerAction> Synchronize();
  // Moves the step to where the run is.
  void FindStep();
  // Returns the next action that brings a fragment to its newest version with
  // nothing in flight, if any is needed.
  std::optional<TrainerAction> ReachNewest(uint32_t fragment);
  // Returns the next action after the last step; none if a fragment that must
  // be sent has no training, so that the last step is repeated.
  std::optional<TrainerAction> Finish();
  TrainerAction ApplyOrWait(uint32_t fragment);
  TrainerAction ApplyUpdate(uint32_t fragment);
  TrainerAction Send(uint32_t fragment, bool partial, uint64_t apply_step);
  // Counts the updates that are late after this step.
  void BookLateness();
  bool IsDue(const Fragment& fragment) const;
  // Returns whether a fragment that is due at `step` has nothing to send.
  bool MustTrain(uint64_t step) const;
  // Returns the order to measure the merged model if the island was asked to
  // measure the anchors' version.
  std::optional<TrainerAction> ValidateIfDue();
  bool SaveIsDue() const;
  // Returns whether the run is finished and the fragment has its last update.
  bool IsOver(uint32_t fragment) const;
  bool RunIsOver() const;

  const Options options_;
  IslandMembership membership_;
  Phase phase_ = Phase::kJoining;
  absl::Status failure_;
  std::optional<action::End> end_;
  // The trainer's unanswered action.
  std::optional<TrainerAction> ordered_;
  std::optional<Snapshot> snapshot_;

  v1::RunConfig config_;
  std::optional<SyncSchedule> schedule_;
  // The start: whether from the checkpoint, the heads of the first anchors, and
  // the number of these that are loaded.
  bool resumes_ = false;
  std::vector<v1::FragmentHead> heads_;
  uint32_t loaded_ = 0;
  // Is true while the host fetches the next one beside the trainer.
  bool fetching_ = false;
  Backoff load_backoff_;
  absl::Time load_not_before_ = absl::InfinitePast();

  std::vector<Fragment> fragments_;
  uint64_t step_ = 0;
  // The actions after a step: whether they are under way, the step's sends, the
  // next send, and whether lateness was counted.
  bool synchronizing_ = false;
  std::vector<SyncSchedule::Send> sends_;
  size_t next_send_ = 0;
  bool lateness_booked_ = false;
  // Is true if no update may be in flight at the next step.
  bool settling_ = false;
  // Is true if the step may have to change, because a round closed without the
  // island or the island began with a checkpoint.
  bool is_astray_ = false;
  // The steps of this process's last checkpoint and of the last one ordered.
  std::optional<uint64_t> saved_step_;
  std::optional<uint64_t> save_ordered_step_;
  uint64_t validated_version_ = 0;
  absl::Time leave_deadline_;
  bool has_handed_in_ = false;

  Lateness lateness_;
  // The current wait, if any; the time when it got its reason; and the duration
  // of the earlier waits for synchronization.
  v1::Wait wait_;
  absl::Time wait_since_;
  absl::Duration waited_;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_OUTER_LOOP_H_
