// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's process in virtual time: the real rules
// (server/rules/coordinator.h) and the real memory for uploads
// (server/staging.h), with the part of server/engine.h around them modelled:
// one event at a time, persisted before its caller is answered; one outer step
// at a time beside that; ticks; and views to whoever has a session.
//
// Calls are made where their messages arrive. An answer is given by calling
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
  // Whether the change is there, too.
  bool kept = true;
  // new anchor - old anchor.
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

  // All outlive the host. It is down until Start.
  CoordinatorHost(const Scenario* scenario, World* world, Disk* disk,
                  Checker* checker);

  // Takes up the run from what is durable.
  void Start();
  void Kill();
  bool up() const { return core_.has_value(); }
  // From now on contributions are as they should be.
  void Heal() { outliers_ = false; }
  const Coordinator* core() const { return up() ? &*core_ : nullptr; }

  void Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply);
  void Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply);

  // An operator's.
  void Pause(bool pause);
  void Evict(uint32_t island);
  void Drain(uint32_t island);
  // On the oldest contribution that is held back, if there is one.
  void Admit();
  void Drop();

  // A new control stream. `publish` hears of each view, and of the stream's
  // end, which is an error. Returns its id.
  uint64_t OpenSession(Reply<v1::SessionResponse> publish);
  void Heartbeat(uint64_t session, const v1::SessionRequest& request);

  // The parts of Contribute.
  void Offer(const v1::ContributionHeader& header,
             Reply<v1::ContributeResponse> reply);
  // UPLOAD: more has to come.
  void Append(const v1::ContributionHeader& header, uint64_t offset,
              const std::string& data, Reply<v1::ContributeResponse> reply);
  void Complete(const v1::ContributionHeader& header,
                Reply<v1::ContributeResponse> reply);

  // As in the protocol, also before there is such an update.
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

  // To whoever calls while the process is not there.
  static absl::Status Down() {
    return absl::UnavailableError("connection refused");
  }
  absl::Time now() const;
  // Whether the caller is a member; the checker is told.
  absl::Status CheckMember(const v1::IslandIdentity& identity);
  // Runs `event` when the events before it are done, if the process lives on.
  void Enter(EventLoop::Action event);
  // Persists and carries out what an event brought about; then `answer`.
  void Settle(Effects effects, std::function<void(const absl::Status&)> answer);
  void CarryOut(const Effects& effects);
  void KeepQuarantined(const Effects& effects);
  // The oldest that is held back and not in a round; 0 if there is none.
  uint64_t OldestHeld() const;
  // Whether the values that are at hand are to be.
  bool IsOutOfRange();
  // Of a contribution that arrives.
  double Norm();
  void Publish();
  // Whether the update is still to be made, and the caller waits for it.
  bool IsAwaited(const v1::FetchUpdateRequest& request) const;
  void ServeAwaited();
  void ShowView(const Session& session);
  void Tick();
  void BeginOuterStep();
  absl::StatusOr<Commit> Merge(const OuterStepOrder& order) const;
  void EndOuterStep(const OuterStepOrder& order,
                    const absl::StatusOr<v1::FragmentHead>& head);
  // The disk takes writes again, and what became of the last one is known.
  void Reconcile();

  const Scenario* const scenario_;
  World* const world_;
  Disk* const disk_;
  Checker* const checker_;

  // Counts the processes; what was begun in another one is dropped.
  uint64_t life_ = 0;
  uint64_t next_session_ = 1;
  bool outliers_ = true;

  // The process's own, while it is up.
  std::optional<Coordinator> core_;
  std::optional<Staging> staging_;
  absl::Time started_at_;
  absl::Time clock_at_start_;
  double clock_rate_ = 1;
  std::map<uint64_t, Session> sessions_;
  std::vector<std::pair<v1::FetchUpdateRequest, Reply<FetchedUpdate>>>
      awaited_updates_;
  // An event is being persisted; others wait.
  bool busy_ = false;
  std::deque<EventLoop::Action> waiting_;
  Disk::Batch unwritten_;
  std::deque<OuterStepOrder> orders_;
  bool merging_ = false;
  // Bytes of what was admitted to open rounds.
  std::map<ContributionKey, std::string> admitted_;
  // The outer step whose commit has an unknown outcome, and what it made.
  std::optional<std::pair<OuterStepOrder, v1::FragmentHead>> doubtful_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_COORDINATOR_HOST_H_
