// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rules of a run as a deterministic state machine: events in, effects out,
// time passed in. Threads, files and gRPC live around it (server/engine.h), so
// that the same rules run in tests and simulations.
//
// An event is a method. It returns what the caller of the event should hear,
// and appends to `Effects` what must be done about it. The members, accounts,
// entries and events in them are persisted first, in one transaction, and the
// caller hears its answer only if they were. Then, whether they were or not:
// keep the bytes of what was quarantined, drop `discarded` uploads, publish
// View() if `view_changed`, start `outer_steps` (each is answered by
// OuterStepCommitted or OuterStepFailed).
//
// Not thread-safe.
#ifndef SERVER_RULES_COORDINATOR_H_
#define SERVER_RULES_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_events.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/membership.h"
#include "server/rules/norm_guard.h"
#include "server/rules/quarantine.h"
#include "server/rules/round.h"
#include "server/rules/token_ledger.h"

namespace causeway {

// Merge these contributions into the fragment's next version.
struct OuterStepOrder {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  // In the order they are to be summed.
  std::vector<v1::ContributionHeader> contributions;
  // Of each of them.
  std::vector<double> norms;
  // Quarantine entries among them; committed, they are admitted.
  std::vector<uint64_t> admitted;
  v1::Participation participation;
};

struct Effects {
  // To be persisted.
  std::vector<Member> joined;
  std::vector<Member> ended;
  std::vector<Member> changed;
  std::vector<AccountRecord> accounts;
  // Came too late or were left out.
  std::vector<v1::ContributionHeader> late;
  // New entries, whose bytes are to be kept, and changed ones.
  std::vector<QuarantineEntry> quarantine;
  std::optional<RunFlags> flags;
  std::vector<CoordinatorEvent> events;

  std::vector<ContributionKey> discarded;
  bool view_changed = false;
  std::vector<OuterStepOrder> outer_steps;

  // Whether there is anything to be persisted.
  bool IsDurable() const {
    return !joined.empty() || !ended.empty() || !changed.empty() ||
           !accounts.empty() || !late.empty() || !quarantine.empty() ||
           flags.has_value() || !events.empty();
  }
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
  struct CommittedFragment {
    v1::FragmentHead head;
    double merged_norm = 0;
    absl::Time committed_at = absl::InfinitePast();
    // The parameters' Euclidean norm at the start; what the guard against
    // outliers compares with in the first rounds.
    double parameter_norm = 0;
  };

  // `heads` (one per fragment of the plan), `members` and `history` are what
  // storage remembers; members that were live get a fresh lease from `now`.
  Coordinator(Options options, std::vector<CommittedFragment> heads,
              std::vector<Member> members, absl::Time now,
              CoordinatorHistory history = {});

  // --- Events. Errors as documented in proto/coordinator.proto. ---

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        absl::Time now, Effects& effects);
  absl::Status Heartbeat(const v1::IslandIdentity& identity,
                         const v1::IslandProgress& progress, absl::Time now,
                         Effects& effects);
  // How an island should go on with a contribution: UPLOAD, ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Offer(
      const v1::ContributionHeader& header, absl::Time now);
  // The contribution's bytes are here and as they were sent; `norm` is its
  // Euclidean norm, not finite if a value is not: ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Complete(
      const v1::ContributionHeader& header, double norm, absl::Time now,
      Effects& effects);
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time now,
                     Effects& effects);
  void Tick(absl::Time now, Effects& effects);
  void OuterStepCommitted(const OuterStepOrder& order,
                          const OuterStepOutcome& outcome, absl::Time now,
                          Effects& effects);
  // Whether the outer step was committed will only be known later: commits stop
  // and its round stays closed until one of the other two comes.
  void OuterStepInDoubt(const OuterStepOrder& order, const absl::Status& status,
                        Effects& effects);
  // OUT_OF_RANGE: the result is not finite; the contribution with the largest
  // norm is quarantined, or left out if its incarnation has ended, and the
  // round goes on without it. Else commits stop and
  // the message is shown until one succeeds again; the round is tried anew
  // after a pause.
  void OuterStepFailed(const OuterStepOrder& order, const absl::Status& status,
                       absl::Time now, Effects& effects);

  // --- Operators. Errors as documented in proto/control.proto. ---

  absl::Status Pause(absl::string_view reason, Effects& effects);
  absl::Status Resume(absl::Time now, Effects& effects);
  absl::Status Drain(const std::string& island_id, absl::string_view reason,
                     Effects& effects);
  absl::Status Evict(const std::string& island_id, absl::string_view reason,
                     absl::Time now, Effects& effects);
  // Puts a quarantined contribution, whose bytes the caller has, into the open
  // round of its fragment; returns what it is called there.
  absl::StatusOr<ContributionKey> Admit(uint64_t id, absl::Time now,
                                        Effects& effects);
  absl::Status Drop(uint64_t id, Effects& effects);

  // --- Views. ---

  // The member that `identity` names, if it may act.
  absl::Status Check(const v1::IslandIdentity& identity);
  // What the control stream of a member should say.
  v1::SessionResponse View(const v1::IslandIdentity& identity);
  v1::RunState run_state() const;
  // Why commits are suspended, or empty.
  const std::string& suspended_because() const { return suspended_because_; }
  // What people should know about the run's state, or empty.
  const std::string& message() const {
    return flags_.paused ? flags_.pause_reason : suspended_because_;
  }
  // The run's position in inner steps.
  uint64_t RunStep();
  // Live expected islands that have not contributed to the open round.
  std::vector<std::string> Awaited(uint32_t fragment);

  // H_i of a live member, as in SessionResponse.
  uint64_t InnerStepsPerRound(const Member& member);
  // The ledger of one fragment, of all incarnations.
  v1::TokenLedger FragmentLedger(uint32_t fragment) const;
  // Of one incarnation, all fragments together.
  v1::TokenLedger IslandLedger(const IncarnationKey& key) const;
  const v1::Participation& participation() const { return participation_; }
  // In the round that made the fragment's head.
  const v1::Participation& last_round(uint32_t fragment) const {
    return last_rounds_[fragment];
  }
  // By id.
  const std::map<uint64_t, QuarantineEntry>& quarantine() const {
    return quarantine_;
  }
  // Whether a contribution that is in a merge came out of the quarantine: the
  // incarnation has diverged, and nobody goes on with what it had trained.
  bool WasAdmitted(const IncarnationKey& key, const std::string& digest) const;
  // Entries that wait for a decision.
  uint32_t held_count() const;

  const Options& options() const { return options_; }
  const SyncSchedule& schedule() const { return options_.schedule; }
  const std::vector<CommittedFragment>& heads() const { return heads_; }
  const Round& round(uint32_t fragment) const { return rounds_[fragment]; }
  const Membership& membership() const { return membership_; }

 private:
  bool IsFinished() const;
  Round NewRound(uint32_t fragment) const;
  absl::Status CheckHeader(const v1::ContributionHeader& header) const;
  // Contributions that the open round has, or may come to have.
  size_t Reachable(uint32_t fragment);
  // If too few islands are left to reach the quorum, everybody is expected.
  void RefreshExpectations(uint32_t fragment, Effects& effects);
  void MaybeClose(uint32_t fragment, absl::Time now, Effects& effects);
  void EndMember(Member& member, MemberState state, absl::string_view reason,
                 absl::Time now, Effects& effects);
  void Quarantine(const v1::ContributionHeader& header, double norm,
                  absl::string_view reason, bool admissible, absl::Time now,
                  Effects& effects);
  void DropEntry(QuarantineEntry& entry, Effects& effects);
  // The outer step cannot be done with what is in the round.
  void SetAsideLargest(const OuterStepOrder& order, const absl::Status& status,
                       absl::Time now, Effects& effects);
  // Takes what is not in the round any more, of an incarnation that has ended,
  // for not handed in: the island may have the same training still, or in a
  // checkpoint, and contribute it under its next incarnation.
  void LeaveOut(const v1::ContributionHeader& header, absl::string_view reason,
                Effects& effects);
  // What had expired with earlier incarnations of the process is this one's.
  void TakeOver(const IncarnationKey& key, Effects& effects);
  // Fences off whoever takes it that it need not offer a contribution to the
  // round, because one of an earlier incarnation was there: it joins again.
  void EndMemberThatReliedOn(const ContributionKey& removed, absl::Time now,
                             Effects& effects);
  // The same of those who were told that the round was closed, if it cannot
  // close without them.
  void EndMembersTurnedAway(uint32_t fragment, absl::Time now,
                            Effects& effects);
  // Rounds of the fragment since the island's last contribution was merged, or
  // since it is expected there; at least 1.
  uint64_t RoundsSinceMerged(const Member& member, uint32_t fragment) const;
  // Fault injection: whether the contribution is to be left out.
  bool IsLeftOut(const v1::ContributionHeader& header);
  // When the round may close without those that are awaited.
  void SetGrace(uint32_t fragment);
  // Books what was merged.
  void Settle(const v1::ContributionHeader& header, Effects& effects);
  bool IsLive(const IncarnationKey& key) const;
  // What the island has in the fragment's open round that is not booked yet.
  std::map<IncarnationKey, OpenTokens> Open(uint32_t fragment,
                                            const std::string& island_id) const;
  // The same of one incarnation, by fragment.
  std::vector<OpenTokens> OpenOf(const IncarnationKey& key) const;
  v1::TokenLedger Account(const IncarnationKey& key, uint32_t fragment) const;

  const Options options_;
  std::vector<CommittedFragment> heads_;
  std::vector<Round> rounds_;
  // By fragment.
  std::vector<NormGuard> guards_;
  Membership membership_;
  TokenLedger ledger_;
  std::map<uint64_t, QuarantineEntry> quarantine_;
  // Entries that are in an open round, by what they are called there.
  std::map<ContributionKey, uint64_t> admitted_;
  v1::Participation participation_;
  std::vector<v1::Participation> last_rounds_;
  // By island and fragment: the version that follows the last one which a
  // merged contribution of the island builds on.
  std::map<std::pair<std::string, uint32_t>, uint64_t> merged_until_;
  // Of the last outer step.
  absl::Duration outer_step_;
  RunFlags flags_;
  std::string suspended_because_;
};

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_H_
