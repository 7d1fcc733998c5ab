// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One island, from join to leave: fetches the run's configuration and
// parameters, trains, and carries out the orders of the outer loop
// (worker/outer_loop/outer_loop.h).
//
//   Island island(options, client);
//   absl::Status status = island.Run();   // on this thread
//   island.RequestLeave("pre-emption");   // from another: in good order
//   island.Stop();                        // or at once
//
// A foreign training loop calls the island instead, and its trainer makes no
// steps:
//
//   island.Start();
//   while (true) {
//     ASSIGN_OR_RETURN(std::optional<uint64_t> step,
//                      island.NextStep(deadline));
//     if (!step.has_value()) continue;   // not yet
//     if (*step == 0) break;             // the run is finished
//     island.Stepped({.loss = loss, .tokens = tokens});
//   }
//   island.End(status);
#ifndef WORKER_ISLAND_H_
#define WORKER_ISLAND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checkpoint/initial_values.h"
#include "common/clock.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/island_checkpoint.h"
#include "worker/outer_loop/outer_loop.h"
#include "worker/replica/fragment_replica.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_actor.h"
#include "worker/sync/session_actor.h"
#include "worker/sync/shared_outer_loop.h"
#include "worker/training_progress.h"

namespace causeway {

// Makes the trainer of an island that has joined a run. It starts from
// `parameters`.
using TrainerFactory =
    std::function<absl::StatusOr<std::unique_ptr<InnerTrainer>>(
        const v1::JoinResponse& joined, std::vector<float> parameters)>;

class Island {
 public:
  struct Options {
    v1::JoinRequest join;
    TrainerFactory make_trainer;
    // Returns an error if the island cannot train the run that it has joined.
    // Called before anything is fetched. Null accepts any run.
    std::function<absl::Status(const v1::JoinResponse& joined)> check_run;
    // The island's own tau, which replaces the run's overlap_steps. Less than
    // the run's inner_steps_per_round.
    std::optional<uint32_t> overlap_steps;
    // The island's own bits per value; see OuterLoop::Options.
    std::optional<double> uplink_bits;
    // The island's checkpoints; null keeps none. Must outlive the island.
    IslandCheckpointStore* checkpoints = nullptr;
    // The inner steps between two checkpoints, at least 1.
    uint64_t checkpoint_steps = 1;
    // Checkpoints in memory, for which the island spends 1 % of its time; null
    // keeps none. Must outlive the island.
    IslandCheckpointStore* recent_checkpoints = nullptr;
    // The newest of these states, or null. The island continues from it unless
    // the run is too far ahead. Its values are moved from.
    std::shared_ptr<IslandState> resume;
    // The island calls hands_over after each step. If it returns true, the
    // island passes its state to hand_over, for a new Island to continue from,
    // and ends with ABORTED or with an error of hand_over. The island delays
    // this by up to a round while a contribution is under way, because the new
    // Island would have to repeat the contribution's step. May be null.
    std::function<bool()> hands_over = nullptr;
    std::function<absl::Status(IslandState)> hand_over = nullptr;
    // A copy of the checkpoint that the run began with
    // (common/checkpoint/tensor_files.h), so that version 0 need not be
    // fetched. Empty: there is none.
    std::string initial_parameters;
    // The seed of the back-off's jitter.
    uint64_t seed = 0;
    Clock now;
    // The time limit for a leaving island to hand in its training.
    absl::Duration leave_timeout = absl::Seconds(30);
    // The time between two log lines on training progress.
    absl::Duration log_interval = absl::Seconds(5);
    // The shortest time of a step: Run sleeps after faster ones. For
    // experiments in which a small model stands for a large one (tests/wan).
    // Steps do not make up for an earlier slow one.
    absl::Duration step_time = absl::ZeroDuration();
    std::function<void(absl::Duration)> sleep = absl::SleepFor;
    // Returns, once, a supervisor's verdict on a rank of this island or its
    // predecessor. The island calls it after the join, after it has made its
    // trainer, which needs all ranks, and when it leaves. May be null.
    std::function<std::optional<v1::RankTrouble>()> take_verdict = nullptr;
  };

  // `client` outlives the island.
  Island(Options options, CoordinatorClient* client);

  // Trains until the run is finished or the island has left.
  //   OK            The run is finished.
  //   CANCELLED     RequestLeave, Stop or an operator ended it.
  //   OUT_OF_RANGE  The replica diverged, or has a version that was lost with a
  //                 coordinator. A new Island, with another instance_id, may
  //                 start from the run's parameters.
  //   otherwise     The reason why the island cannot take part.
  absl::Status Run();

  // Begins to join. Call once, and call End afterwards.
  void Start();
  // Waits until the island has joined, and returns the run, with the island's
  // own overlap_steps.
  //   DEADLINE_EXCEEDED  It has not joined before `deadline`; call again.
  //   otherwise          See Run.
  absl::StatusOr<const v1::JoinResponse*> AwaitRun(absl::Time deadline);
  // Carries out the outer loop's orders until the next step can be trained.
  // Returns the step's number, 0 if the run is finished, or nothing at
  // `deadline`. Parameters are fetched on another thread, also between calls;
  // what touches the trainer is done in a call, past `deadline` if need be.
  // After an error (see Run), every call returns it again.
  absl::StatusOr<std::optional<uint64_t>> NextStep(absl::Time deadline);
  // Call instead of training the step that NextStep returned: the next call of
  // NextStep first waits until the updates of everything sent are applied.
  void SettleFirst();
  // Records that the step that NextStep returned is trained.
  void Stepped(const InnerStepResult& result);
  // Returns how many rounds' worth of steps this object has trained. For the
  // training thread.
  uint64_t RoundsMade() const;
  // Makes Run or NextStep return `status` soon. Thread-safe.
  void Fail(const absl::Status& status);
  // Ends what Start has begun, and leaves the run for the reason in `status`.
  void End(const absl::Status& status);

  // Copies the anchors of the whole model. The parameters differ from them by
  // the training since. Call between steps.
  absl::Status ReadAnchors(absl::Span<float> model);
  // Returns the state from which another process can continue. Call between
  // steps.
  absl::StatusOr<IslandState> State();

  // Return the island's progress, its activity, whether that is a step, whether
  // it has left and handed in all training, the step that it has reached, and
  // how long training has stood still for synchronization. Thread-safe.
  v1::IslandProgress Progress() { return progress_.Report(); }
  // Like Progress, but takes nothing from the next heartbeat's report.
  v1::IslandProgress CurrentProgress() { return progress_.Current(); }
  std::string Activity() const;
  bool IsTraining() const;
  bool HasHandedIn() const;
  uint64_t Step() const;
  absl::Duration Waited() const { return progress_.waited(); }

  // Makes Run, after its current step, or NextStep hand in the training so far
  // as partial contributions within leave_timeout, and return CANCELLED.
  // Thread-safe.
  void RequestLeave(absl::string_view reason);

  // Makes Run or NextStep return soon, without handing anything in.
  // Thread-safe.
  void Stop();

 private:
  // Makes steps until the outer loop ends; returns its status.
  absl::Status Train();
  // Each carries out an action and reports the result to the loop, a fetch from
  // fetcher_. An error ends the island.
  absl::Status Do(const action::Wait&) { return absl::OkStatus(); }
  absl::Status Do(const action::End&) { return absl::OkStatus(); }
  absl::Status Do(const action::Train&) { return absl::OkStatus(); }
  absl::Status Do(const action::FetchParameters& fetch);
  absl::Status Do(const action::Begin& begin);
  // Notes in the checkpoints that this process is a member.
  absl::Status NoteProcess();
  absl::Status Do(const action::TakeSnapshot& snapshot);
  absl::Status Do(const action::Apply& apply);
  absl::Status Do(const action::Validate& validate);
  absl::Status Do(const action::Save& save);
  bool HandsOver(uint64_t step);

  absl::StatusOr<IslandState> StateAt(v1::IslandCheckpoint position);
  // Returns the store in which a checkpoint of `step` is due, or null.
  IslandCheckpointStore* DueCheckpoints(uint64_t step, absl::Time now) const;
  // Warns if a checkpoint may be older than all updates that the coordinator
  // keeps.
  void WarnOfOldCheckpoints() const;
  // Sets joined_ and map_ once the island has joined.
  absl::Status TakeUpRun();
  // Sets initial_.
  absl::Status OpenInitialValues(ModelLayout layout);
  // On fetcher_: makes or fetches a fragment's parameters, and reports the
  // result to the loop. An error ends the island.
  absl::Status Load(const v1::FetchParametersRequest& request);
  void JoinFetcher();
  // Fetches a fragment's parameters; returns their head.
  absl::StatusOr<v1::FragmentHead> Fetch(
      const v1::FetchParametersRequest& request, absl::Span<float> values);
  // Makes version 0 of a fragment, or reads it from the island's checkpoint,
  // into `values`. Returns its head, or none if it must be fetched.
  absl::StatusOr<std::optional<v1::FragmentHead>> MakeInitialValues(
      uint32_t fragment, absl::Span<float> values);
  // Reads a fragment's anchor into its place in `model`; returns its digest.
  absl::StatusOr<std::string> ReadAnchor(uint32_t fragment,
                                         absl::Span<float> model);
  std::optional<v1::RankTrouble> TakeVerdict() const;
  void NoteVerdict();
  void Leave(const absl::Status& status);

  const Options options_;
  CoordinatorClient* const client_;
  SharedOuterLoop loop_;
  TrainingProgress progress_;
  std::optional<SessionActor> session_;

  // The rest belongs to the training thread, which leaves what fetching uses to
  // fetcher_ until the loop has its answer.
  //
  // Fetches the parameters for the start, so that NextStep can return
  // meanwhile.
  std::thread fetcher_;
  // The coordinator's answer to the join, with the island's own overlap_steps
  // and ecq_bits.
  std::optional<v1::JoinResponse> joined_;
  // The step of the last checkpoint in `checkpoints`.
  std::optional<uint64_t> saved_step_;
  // The step after which hands_over first returned true.
  std::optional<uint64_t> hands_over_since_;
  // When the last recent checkpoint was made, and the shortest time that
  // training has waited for one.
  absl::Time saved_recent_ = absl::InfinitePast();
  absl::Duration time_to_save_ = absl::InfiniteDuration();
  std::optional<FragmentMap> map_;
  // The source of version 0, if this island has one, until training begins.
  std::optional<InitialValues> initial_;
  // The parameters of the whole model, until the trainer takes them.
  std::vector<float> parameters_;
  ParametersDownload download_;
  // The step under way, and when it began.
  uint64_t step_ = 0;
  absl::Time step_began_;
  uint64_t steps_made_ = 0;
  std::unique_ptr<InnerTrainer> trainer_;
  std::vector<std::unique_ptr<FragmentReplica>> replica_;
  std::vector<std::unique_ptr<FragmentActor>> actors_;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_H_
