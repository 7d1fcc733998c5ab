// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's process in virtual time: the real rules
// (server/rules/coordinator.h) and the real memory for uploads
// (server/staging.h), with the part of server/engine.h around them modelled:
// one event at a time, persisted before its caller is answered; one outer step
// at a time beside that; ticks; and views to all sessions.
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
#include "server/rules/coordinator.h"
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
  // Whether the update has the change as well.
  bool kept = true;
  // The new anchor minus the old anchor.
  std::vector<Interval> change;
};
struct FetchedParameters {
  v1::FragmentHead head;
  Contents contents;
};

class CoordinatorHost {
 public:
  template <typename Answer>
  using Reply = std::function<void(const absl::StatusOr<Answer>&)>;

  // The arguments outlive the host. It is down until Start.
  CoordinatorHost(const Scenario* scenario, World* world, Disk* disk,
                  Checker* checker);

  // Takes up the run from its durable state.
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

  // Follows the protocol, also before there is such an update.
  void FetchUpdate(const v1::FetchUpdateRequest& request,
                   Reply<FetchedUpdate> reply);
  void FetchParameters(const v1::FetchParametersRequest& request,
                       Reply<FetchedParameters> reply);

 private:
  struct Session {
    Reply<v1::SessionResponse> publish;
    v1::IslandIdentity identity;
    absl::Time heard;
  };

  // Returns the answer to calls while the process is down.
  static absl::Status Down() {
    return absl::UnavailableError("connection refused");
  }
  absl::Time now() const;
  // Returns whether the caller is a member, and tells the checker.
  absl::Status CheckMember(const v1::IslandIdentity& identity);
  // Runs `event` after the events before it, if the process still lives then.
  void Enter(EventLoop::Action event);
  // Persists and carries out an event's effects; then calls `answer`.
  void Settle(Effects effects, std::function<void(const absl::Status&)> answer);
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
  // Returns whether the update is still to be made, and the caller waits for
  // it.
  bool IsAwaited(const v1::FetchUpdateRequest& request) const;
  void ServeAwaited();
  void ShowView(const Session& session);
  void Tick();
  void BeginOuterStep();
  absl::StatusOr<Commit> Merge(const OuterStepOrder& order) const;
  void EndOuterStep(const OuterStepOrder& order,
                    const absl::StatusOr<v1::FragmentHead>& head);
  // Finds out, when the disk takes writes again, what became of the last one.
  void Reconcile();

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
  std::optional<Staging> staging_;
  absl::Time started_at_;
  absl::Time clock_at_start_;
  double clock_rate_ = 1;
  std::map<uint64_t, Session> sessions_;
  std::vector<std::pair<v1::FetchUpdateRequest, Reply<FetchedUpdate>>>
      awaited_updates_;
  // Whether an event is being persisted, so that others wait.
  bool busy_ = false;
  std::deque<EventLoop::Action> waiting_;
  Disk::Batch unwritten_;
  std::deque<OuterStepOrder> orders_;
  bool merging_ = false;
  // The bytes of contributions that were admitted to open rounds.
  std::map<ContributionKey, std::string> admitted_;
  // The outer step whose commit has an unknown outcome, and its result.
  std::optional<std::pair<OuterStepOrder, v1::FragmentHead>> doubtful_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_COORDINATOR_HOST_H_
