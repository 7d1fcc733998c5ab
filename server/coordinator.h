// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rules of a run as a deterministic state machine: events in, effects out,
// time passed in. Threads, files and gRPC live around it (server/engine.h), so
// that the same rules run in tests and simulations.
//
// An event is a method. It returns what the caller of the event should hear,
// and appends to `Effects` what must be done about it. `joined`, `ended` and
// `events` are persisted first, and the caller hears its answer only if they
// were. Then, whether they were or not, and in any order: drop `discarded`
// uploads, publish View() if `view_changed`, start `outer_steps` (each is
// answered by OuterStepCommitted or OuterStepFailed).
//
// Not thread-safe.
#ifndef SERVER_COORDINATOR_H_
#define SERVER_COORDINATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "server/coordinator_events.h"
#include "server/membership.h"
#include "server/round.h"

namespace causeway {

// Merge these contributions into the fragment's next version.
struct OuterStepOrder {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  // In the order they are to be summed.
  std::vector<v1::ContributionHeader> contributions;
};

struct Effects {
  std::vector<Member> joined;
  std::vector<Member> ended;
  std::vector<CoordinatorEvent> events;
  std::vector<ContributionKey> discarded;
  bool view_changed = false;
  std::vector<OuterStepOrder> outer_steps;
};

// What an outer step committed.
struct OuterStepOutcome {
  v1::FragmentHead head;
  double merged_norm = 0;
  absl::Duration duration;
};

class Coordinator {
 public:
  struct Options {
    std::string run_id;
    v1::RunConfig config;
    v1::FragmentPlan plan;
    // Of the same config and plan.
    SyncSchedule schedule;
  };

  // The committed state of one fragment.
  struct FragmentState {
    v1::FragmentHead head;
    double merged_norm = 0;
    absl::Time committed_at = absl::InfinitePast();
  };

  // `heads` (one per fragment of the plan) and `members` are what storage
  // remembers; members that were live get a fresh lease from `now`.
  Coordinator(Options options, std::vector<FragmentState> heads,
              std::vector<Member> members, absl::Time now);

  // --- Events. Errors as documented in proto/coordinator.proto. ---

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        absl::Time now, Effects& effects);
  absl::Status Heartbeat(const v1::IslandIdentity& identity,
                         const v1::IslandProgress& progress, absl::Time now,
                         Effects& effects);
  // How an island should go on with a contribution: UPLOAD, ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Offer(
      const v1::ContributionHeader& header, absl::Time now);
  // The contribution's bytes are here and sound: ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Complete(
      const v1::ContributionHeader& header, absl::Time now, Effects& effects);
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time now,
                     Effects& effects);
  void Tick(absl::Time now, Effects& effects);
  void OuterStepCommitted(const OuterStepOrder& order,
                          const OuterStepOutcome& outcome, absl::Time now,
                          Effects& effects);
  // Commits stop and the message is shown until one succeeds again; the round
  // is tried anew after a pause.
  void OuterStepFailed(const OuterStepOrder& order, const absl::Status& status,
                       absl::Time now, Effects& effects);

  // --- Views. ---

  // The member that `identity` names, if it may act.
  absl::Status Check(const v1::IslandIdentity& identity);
  // What the control stream of a member should say.
  v1::SessionResponse View(const v1::IslandIdentity& identity);
  v1::RunState run_state() const;
  // Why commits are suspended, or empty.
  const std::string& suspended_because() const { return suspended_because_; }
  // The run's position in inner steps.
  uint64_t RunStep();
  // Live expected islands that have not contributed to the open round.
  std::vector<std::string> Awaited(uint32_t fragment);

  const Options& options() const { return options_; }
  const SyncSchedule& schedule() const { return options_.schedule; }
  const std::vector<FragmentState>& heads() const { return heads_; }
  const Round& round(uint32_t fragment) const { return rounds_[fragment]; }
  const Membership& membership() const { return membership_; }

 private:
  bool IsFinished() const;
  Round NewRound(uint32_t fragment) const;
  absl::Status CheckHeader(const v1::ContributionHeader& header) const;
  // If too few islands are left to reach the quorum, everybody is expected.
  void RefreshExpectations(uint32_t fragment, Effects& effects);
  void MaybeClose(uint32_t fragment, absl::Time now, Effects& effects);
  void EndMember(Member& member, MemberState state, absl::string_view reason,
                 absl::Time now, Effects& effects);

  const Options options_;
  std::vector<FragmentState> heads_;
  std::vector<Round> rounds_;
  Membership membership_;
  // Once min_islands have joined, the run goes on with whoever is left.
  bool started_ = false;
  std::string suspended_because_;
};

}  // namespace causeway

#endif  // SERVER_COORDINATOR_H_
