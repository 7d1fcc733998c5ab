// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's process in virtual time: the real rules
// (server/rules/coordinator.h), the real decisions about what is durable first
// (server/rules/journal.h, commit_sequence.h and fragment_files.h) and the real
// memory for uploads (server/staging.h), with the part of server/engine.h that
// carries them out modelled: one event at a time; one outer step and one
// snapshot at a time beside that; ticks; and views to all sessions.
//
// Calls take place where their messages arrive. The host answers by calling
// `reply`, at once or later, or never if the process is killed meanwhile.
#ifndef TESTS_SIMULATION_COORDINATOR_HOST_H_
#define TESTS_SIMULATION_COORDINATOR_HOST_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "server/rules/commit_sequence.h"
#include "server/rules/coordinator.h"
#include "server/rules/journal.h"
#include "server/staging.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"
#include "worker/outer_loop/fragment_window.h"

namespace causeway::simulation {

struct FetchedUpdate {
  v1::FragmentHead head;
  bool includes_island = false;
  FragmentWindow::Training other;
  // If true, the update has the change as well.
  bool kept = true;
  // The new anchor minus the old anchor.
  std::vector<Interval> change;
};

class CoordinatorHost {
 public:
  template <typename Answer>
  using Reply = std::function<void(const absl::StatusOr<Answer>&)>;

  // The arguments outlive the host. It is down until Start.
  CoordinatorHost(const Scenario* scenario, World* world, Disk* disk,
                  Checker* checker);

  // Resumes the run from its durable state.
  void Start();
  void Kill();
  bool up() const { return core_.has_value(); }
  // Makes all later contributions well-behaved.
  void Heal() { outliers_ = false; }
  const Coordinator* core() const { return up() ? &*core_ : nullptr; }

  void Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply);
  void Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply);

  // Operators' commands.
  void Pause(bool pause);
  void Evict(uint32_t island);
  void Drain(uint32_t island);
  // These act on the oldest contribution in quarantine, if there is one.
  void Admit();
  void Drop();

  // Opens a control stream. `publish` receives each view, and the error that
  // ends the stream. Returns the stream's id.
  uint64_t OpenSession(Reply<v1::SessionResponse> publish);
  void Heartbeat(uint64_t session, const v1::SessionRequest& request);

  // The parts of Contribute. Offer is the first.
  void Offer(const v1::ContributionHeader& header,
             Reply<v1::ContributeResponse> reply);
  // Appends data of an upload. UPLOAD asks for more.
  void Append(const v1::ContributionHeader& header, uint64_t offset,
              const std::string& data, Reply<v1::ContributeResponse> reply);
  void Complete(const v1::ContributionHeader& header,
                Reply<v1::ContributeResponse> reply);

  // Follows the protocol even before there is such an update.
  void FetchUpdate(const v1::FetchUpdateRequest& request,
                   Reply<FetchedUpdate> reply);
  void FetchParameters(const v1::FetchParametersRequest& request,
                       Reply<Version> reply);

 private:
  struct Session {
    Reply<v1::SessionResponse> publish;
    v1::IslandIdentity identity;
    v1::SessionResponse shown;
    absl::Time heard;
  };

  // Returns the answer to calls while the process is down.
  static absl::Status Down() {
    return absl::UnavailableError("connection refused");
  }
  // An outer step that is under way.
  struct OuterStep {
    ClosedRound closed;
    MergeRecord made;
    CommitSequence sequence;
  };

  absl::Time now() const;
  // Brings a fragment to its newest version.
  absl::Status Restore(uint32_t fragment);
  // Runs `event` after the events before it, if the process still lives then.
  void Enter(EventLoop::Action event);
  // Handles an event as the journal says: runs it on the rules, writes to the
  // log, carries its effects out, and calls `answer`.
  template <typename Result>
  void Handle(std::function<Result(Effects& effects)> event,
              std::function<void(const Result&)> answer);
  // Does so for an event without a modelled caller.
  void Handle(std::function<absl::Status(Effects& effects)> event) {
    Handle<absl::Status>(std::move(event), [](const absl::Status&) {});
  }
  void CarryOut(const Effects& effects);
  void KeepQuarantined(const Effects& effects);
  // Returns the oldest contribution in quarantine that is not in a round; 0 if
  // there is none.
  uint64_t OldestHeld() const;
  // Draws whether the current values are out of range.
  bool IsOutOfRange();
  // Draws the norm of a contribution that arrives.
  double Norm();
  void Publish();
  void ServeAwaited();
  void Show(Session& session, const v1::SessionResponse& view);
  void Tick();
  // Begins due outer steps, as many as may be under way at once.
  void BeginOuterSteps();
  void BeginOuterStep(const ClosedRound& closed);
  absl::StatusOr<MergeRecord> Merge(const ClosedRound& closed) const;
  // Does the next part of the fragment's outer step under way.
  void TakeStep(uint32_t fragment);
  void StepDone(uint32_t fragment, const absl::Status& status);
  void EndOuterStep(uint32_t fragment, const absl::Status& status);
  // Finds out, when the disk takes writes again, whether the last one
  // succeeded.
  void Reconcile();
  // Makes a snapshot of a fragment, if one is due and none is being made.
  void MakeSnapshot();

  const Scenario* const scenario_;
  World* const world_;
  Disk* const disk_;
  Checker* const checker_;

  // Counts the processes. Work that an earlier process began is dropped.
  uint64_t life_ = 0;
  uint64_t next_session_ = 1;
  bool outliers_ = true;

  // The process's state while it is up.
  std::optional<Coordinator> core_;
  Journal journal_;
  std::optional<Staging> staging_;
  absl::Time started_at_;
  absl::Time clock_at_start_;
  double clock_rate_ = 1;
  std::map<uint64_t, Session> sessions_;
  std::vector<std::pair<v1::FetchUpdateRequest, Reply<FetchedUpdate>>>
      awaited_updates_;
  // If true, an event is being persisted and others wait.
  bool busy_ = false;
  std::deque<EventLoop::Action> waiting_;
  std::deque<ClosedRound> closed_;
  // The outer steps under way, by fragment.
  std::map<uint32_t, OuterStep> steps_;
  // The newest version of each fragment, and the records since its last
  // snapshot.
  std::vector<Version> newest_;
  std::vector<uint64_t> records_since_;
  bool snapshotting_ = false;
};

template <typename Result>
void CoordinatorHost::Handle(std::function<Result(Effects& effects)> event,
                             std::function<void(const Result&)> answer) {
  Enter([this, event = std::move(event), answer = std::move(answer)] {
    Effects effects;
    const Result result = event(effects);
    checker_->Saw(effects, *core_, now());
    const Journal::Entry entry = journal_.Enter(effects, now());
    for (const CoordinatorEvent& record : entry.events) {
      world_->Trace("event      ", record.text);
    }
    const auto settle = [this, effects = std::move(effects), entry, result,
                         answer](const absl::Status& written) {
      CarryOut(effects);
      answer(Journal::Answer(entry, written, result));
    };
    if (entry.batch == nullptr) return settle(absl::OkStatus());
    busy_ = true;
    disk_->Write(*entry.batch, [this, settle](const absl::Status& outcome) {
      busy_ = false;
      settle(journal_.Written(outcome));
      Enter([] {});
    });
  });
}

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_COORDINATOR_HOST_H_
