// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rules of a run as a deterministic state machine: events in, effects out,
// time passed in. Threads, files and gRPC live around it (server/engine.h), so
// that the same rules run in tests and simulations.
//
// An event is a method. It returns the answer to its caller, and appends to
// `Effects` what must be done. Before the next event, the engine takes the
// bytes of new quarantine entries, drops `discarded` uploads, and persists
// everything in Effects::IsDurable() (server/rules/journal.h). Then, even if
// that failed, it keeps the bytes of new quarantine entries, publishes View()
// if `view_changed`, and starts `outer_steps`. It answers each outer step with
// OuterStepCommitted or OuterStepFailed.
//
// Not thread-safe.
#ifndef SERVER_RULES_COORDINATOR_H_
#define SERVER_RULES_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/rules/claims.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/effects.h"
#include "server/rules/expectations.h"
#include "server/rules/log_batch.h"
#include "server/rules/membership.h"
#include "server/rules/quarantine.h"
#include "server/rules/rank_parts.h"
#include "server/rules/round.h"
#include "server/rules/token_ledger.h"
#include "server/rules/training_history.h"
#include "server/rules/uplink_bits.h"

namespace causeway {

class Coordinator {
 public:
  struct Options {
    std::string run_id;
    v1::RunConfig config;
    v1::FragmentPlan plan;
    // Made from `config` and `plan`.
    SyncSchedule schedule;
    // The number of this coordinator in the run, from 1.
    uint64_t epoch = 1;
    // An island that has trained slower than the others for this long is asked
    // to leave, if enough others remain. Pauses of its training that are longer
    // than its lease do not count.
    absl::Duration drain_slow_after = absl::InfiniteDuration();
  };

  struct CommittedFragment {
    v1::FragmentHead head;
    double merged_norm = 0;
    // Absent if another process merged the version.
    std::optional<double> similarity;
    absl::Time committed_at = absl::InfinitePast();
    // The Euclidean norm of the parameters when the coordinator started.
    // NormGuard compares the first contributions with it. It may be 0 if the
    // history shows what is usual (NormGuard::ShowUsual): if contributions that
    // change nothing displace that later, a small change of each parameter
    // counts as usual instead.
    double parameter_norm = 0;
  };

  // `heads` (one per fragment of the plan), `members` and `history` come from
  // storage. Members that were live get a fresh lease from `now`.
  Coordinator(Options options, std::vector<CommittedFragment> heads,
              std::vector<Member> members, absl::Time now,
              CoordinatorHistory history = {});

  // --- Events; errors as in proto/coordinator.proto. ---

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        absl::Time now, Effects& effects);
  absl::Status Heartbeat(const v1::IslandIdentity& identity,
                         const v1::IslandProgress& progress, absl::Time now,
                         Effects& effects);
  // Returns UPLOAD, ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Offer(
      const v1::ContributionHeader& header, absl::Time now);
  // Takes a contribution whose bytes have arrived and are verified. `norm` is
  // its Euclidean norm, which is not finite if a value is not. `parts` has the
  // header's rank_ends with the squares of the values. Bounds the header's
  // claims (Claims). Returns ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Complete(
      const v1::ContributionHeader& claimed, double norm,
      const RankParts& parts, absl::Time now, Effects& effects);
  absl::Status Leave(const v1::LeaveRequest& request, absl::Time now,
                     Effects& effects);
  void Tick(absl::Time now, Effects& effects);
  // Extends all leases and grace windows by a time in which no event could be
  // handled.
  void ExtendLeases(absl::Duration deaf, absl::Time now) {
    membership_.ExtendLeases(deaf, now);
    // In a pause, rounds wait in any case; Resume shifts them by all of it.
    if (flags_.paused) return;
    for (Round& round : rounds_) round.Shift(deaf, now);
  }
  // Returns the events of a commit with this outcome, to be written in its
  // transaction.
  std::vector<CoordinatorEvent> CommitEvents(
      const ClosedRound& closed, const OuterStepOutcome& outcome) const;
  void OuterStepCommitted(const ClosedRound& closed,
                          const OuterStepOutcome& outcome, absl::Time now,
                          Effects& effects);
  // Stops commits while it is unknown whether the outer step was committed. Its
  // round stays closed until OuterStepCommitted or OuterStepFailed comes.
  void OuterStepInDoubt(const ClosedRound& closed, const absl::Status& status,
                        Effects& effects);
  // If `status` is OUT_OF_RANGE, the result is not finite: puts the
  // contribution with the largest norm into quarantine, or leaves it out if its
  // incarnation has ended, and lets the round continue without it. After other
  // errors, suspends the run, with `status` as its message, until the
  // fragment's commit succeeds; the round is tried again after a pause.
  void OuterStepFailed(const ClosedRound& closed, const absl::Status& status,
                       absl::Time now, Effects& effects);
  // Suspends the run, with `problem` as its message, until a call with OK says
  // that its storage is in place again.
  void StorageChecked(const absl::Status& problem, Effects& effects);
  // Stands down because a coordinator of a higher epoch has taken the run over:
  // from now on the run is suspended here, nothing is committed, and
  // CheckInOffice says why. A call of an island that knows a higher epoch has
  // the same effect. Ignores an epoch that is not higher than its own.
  void StandDown(uint64_t epoch, Effects& effects);

  // --- Operators; errors as in proto/control.proto. ---

  absl::Status Pause(absl::string_view reason, absl::Time now,
                     Effects& effects);
  // Lets the run continue. The time of the pause counts for no grace window.
  absl::Status Resume(absl::Time now, Effects& effects);
  absl::Status Drain(const std::string& island_id, absl::string_view reason,
                     Effects& effects);
  absl::Status Evict(const std::string& island_id, absl::string_view reason,
                     absl::Time now, Effects& effects);
  // Puts a quarantined contribution, whose bytes the caller has, into the open
  // round of its fragment. Returns its key in that round.
  absl::StatusOr<ContributionKey> Admit(uint64_t id, absl::Time now,
                                        Effects& effects);
  absl::Status Drop(uint64_t id, Effects& effects);
  // Permanently makes the data that a live island reads the run's data.
  absl::Status AcceptData(const std::string& island_id, Effects& effects);

  // --- Views. ---

  // Returns OK if `identity` names a live member that may transfer data;
  // otherwise says why not.
  absl::Status Check(const v1::IslandIdentity& identity);
  // Returns UNAVAILABLE if the coordinator has stood down.
  absl::Status CheckInOffice() const;
  // Returns whether the update that an island waits for has not been made yet.
  // Errors of Check.
  absl::StatusOr<bool> IsAwaited(const v1::FetchUpdateRequest& request);
  // Describes how much of an island's training is in an update that has merged
  // these contributions.
  void DescribeMerged(const v1::FetchUpdateRequest& request,
                      absl::Span<const ContributionRecord> merged,
                      v1::FetchUpdateResponse& response) const;
  // Returns the control stream's message to a member.
  v1::SessionResponse View(const v1::IslandIdentity& identity);
  // Returns View() for a member that was last shown `shown`, or nothing if all
  // changes can wait for its next report: a version that its waiting call
  // brings, the run's step, and its share of steps.
  std::optional<v1::SessionResponse> News(const v1::IslandIdentity& identity,
                                          v1::SessionResponse shown);
  v1::RunState run_state() const;
  // Says why the run is suspended; empty if it is not.
  std::string suspended_because() const {
    if (!replaced_because_.empty()) return replaced_because_;
    if (!storage_problem_.empty()) return storage_problem_;
    return failures_.empty() ? "" : failures_.begin()->second;
  }
  // Says why the run is suspended or paused; empty if it is neither.
  std::string message() const {
    return flags_.paused && replaced_because_.empty() ? flags_.pause_reason
                                                      : suspended_because();
  }
  // Returns whether enough islands have been ready for the first round.
  bool HasBegun() const { return flags_.started; }
  // Returns the number of live islands that a round needs to close.
  uint32_t IslandsNeeded() const {
    const v1::MembershipConfig& membership = options_.config.membership();
    return flags_.started ? membership.quorum() : membership.min_islands();
  }
  // The run's position in inner steps.
  uint64_t RunStep();
  // Returns the live expected islands that have not contributed to the open
  // round.
  std::vector<std::string> Awaited(uint32_t fragment) {
    return expectations_.Awaited(rounds_[fragment]);
  }

  // Returns whether a live island has reported that it reads other data than
  // the run's.
  bool DataDiffers(const Member& member) const;

  uint32_t ShardOf(const Member& member) const {
    return member.place % options_.config.data().shards();
  }
  // Returns H_i of a live member, as in SessionResponse.
  uint64_t InnerStepsPerRound(const Member& member);
  // The ledger of one fragment, over all incarnations.
  v1::TokenLedger FragmentLedger(uint32_t fragment) const;
  // The ledger of one incarnation, over all fragments.
  v1::TokenLedger IslandLedger(const IncarnationKey& key) const;
  // The newest measurement of the merged model; none before the first.
  const std::optional<v1::ValidationPoint>& validation() const {
    return validation_;
  }
  const v1::Participation& participation() const { return participation_; }
  // Returns the times of the round that made the head, or null if another
  // process of the coordinator merged it.
  const v1::RoundTimes* last_round_times(uint32_t fragment) const {
    return training_.LastRound(fragment);
  }
  // Notes that an island has received the update that led to `head`.
  void NoteDelivered(const v1::FragmentHead& head, absl::Time now) {
    training_.Delivered(head, now);
  }
  // The participation in the round that made the fragment's head.
  const v1::Participation& last_round(uint32_t fragment) const {
    return last_rounds_[fragment];
  }
  const Quarantine& quarantine() const { return quarantine_; }
  const Options& options() const { return options_; }
  const SyncSchedule& schedule() const { return options_.schedule; }
  const std::vector<CommittedFragment>& heads() const { return heads_; }
  const Round& round(uint32_t fragment) const { return rounds_[fragment]; }
  const Membership& membership() const { return membership_; }

 private:
  // Stands down if `epoch`, which an island of this run knows, is higher. An
  // empty `island_id` names no island. Errors of CheckInOffice.
  absl::Status Hear(absl::string_view run_id, absl::string_view island_id,
                    uint64_t epoch);
  // Records once that the coordinator has stood down.
  void RecordReplacement(Effects& effects);
  // Returns the live member that makes a call. Errors of Check.
  absl::StatusOr<Member*> FindCaller(const v1::IslandIdentity& identity);
  // Does the same for a transfer, and also returns UNAVAILABLE if the island
  // acts on the view of a coordinator of a lower epoch.
  absl::StatusOr<Member*> FindTransferring(const v1::IslandIdentity& identity);
  // Records an event if the trouble of an island's ranks has changed in more
  // than its cost. Either kind may be unspecified.
  static void NoteTrouble(const std::string& island_id,
                          const v1::RankTrouble& before,
                          const v1::RankTrouble& now, Effects& effects);
  void TakeReport(Member& member, const v1::IslandProgress& progress,
                  absl::Time now, Effects& effects);
  // Notes a newly reported speed, and drains an island that is slow too long.
  void NotePace(Member& member, absl::Time now, Effects& effects);
  // Plans the bits of live islands' contributions, once a round.
  void PlanUplinkBits(Effects& effects);
  // Returns a round's sends, if one inner step takes `step_seconds`.
  std::vector<UplinkSend> SendsOfRound(double step_seconds);
  // Notes that an island can train: from now on rounds wait for it.
  void BecomeReady(Member& member, Effects& effects);
  // Notes the data that an island reads; until now it reported `before`. The
  // first data that any island reports are the run's.
  void NoteData(const Member& member, absl::string_view before,
                Effects& effects);
  // Makes the data that more than half of the live islands read the run's data,
  // unless an operator has accepted data.
  void ElectData(Effects& effects);
  // Makes `data` the run's, and records `event` and the islands that now
  // differ.
  void SetData(const std::string& data, CoordinatorEvent event,
               Effects& effects);
  // Records a measurement of the merged model if it is new and possible, and
  // the island is Validator().
  void NoteValidation(const Member& member, absl::Time now, Effects& effects);
  // Returns the island that measures the merged model: the first to join among
  // those that read the run's data and are not draining; null if none does.
  const Member* Validator();
  // Records a point of training if the model has reached a new version.
  void NoteTraining(absl::Time now, Effects& effects);
  std::vector<uint64_t> Versions() const;
  bool IsFinished() const;
  Round NewRound(uint32_t fragment, std::set<std::string> silent = {}) const;
  absl::Status CheckHeader(const v1::ContributionHeader& header) const;
  // Returns whether the island is silent in an open round.
  bool IsSilent(const std::string& island_id) const;
  void RefreshExpectations(uint32_t fragment, absl::Time now, Effects& effects);
  void MaybeClose(uint32_t fragment, absl::Time now, Effects& effects);
  void EndMember(Member& member, v1::IslandStatus::State state,
                 absl::string_view reason, absl::Time now, Effects& effects);
  // Puts a contribution into quarantine, and ends its incarnation.
  void HoldBack(const v1::ContributionHeader& header, double norm,
                absl::string_view reason, bool admissible, absl::Time now,
                Effects& effects);
  // Removes the contribution with the largest norm from a round whose outer
  // step cannot be done.
  void SetAsideLargest(const ClosedRound& closed, const absl::Status& status,
                       absl::Time now, Effects& effects);
  // Books the contribution of an ended incarnation, removed from its round, as
  // never handed in: the island may still have the training, perhaps in a
  // checkpoint, and contribute it again.
  void LeaveOut(const v1::ContributionHeader& header, absl::string_view reason,
                Effects& effects);
  // Moves tokens that had expired with earlier incarnations of the same process
  // to the incarnation `key`.
  void TakeOver(const IncarnationKey& key, Effects& effects);
  // Keeps the ledger from growing with each incarnation.
  void FoldAccounts();
  // Fences off members whose contributions the open round refused while it had
  // `removed`, so that they join and offer again.
  void EndRefusedMembers(const ContributionKey& removed, absl::Time now,
                         Effects& effects);
  // Returns whether fault injection leaves the contribution out.
  bool IsLeftOut(const v1::ContributionHeader& header);
  void Settle(const v1::ContributionHeader& header, Effects& effects);
  bool IsLive(const IncarnationKey& key) const;
  // Returns the island's contributions to the fragment's open round that are
  // not booked yet.
  std::map<IncarnationKey, OpenTokens> Open(uint32_t fragment,
                                            const std::string& island_id) const;

  const Options options_;
  std::vector<CommittedFragment> heads_;
  std::vector<Round> rounds_;
  Membership membership_;
  Expectations expectations_;
  Claims claims_;
  TokenLedger ledger_;
  Quarantine quarantine_;
  v1::Participation participation_;
  std::vector<v1::Participation> last_rounds_;
  // The duration of the last outer step.
  absl::Duration outer_step_;
  TrainingHistory training_;
  std::optional<v1::ValidationPoint> validation_;
  RunFlags flags_;
  // The time since which this process holds the run, if it is paused. Rounds of
  // an earlier process are gone.
  absl::Time paused_at_;
  // Says why the last outer step of each fragment failed, if it did.
  std::map<uint32_t, std::string> failures_;
  // Says why the storage cannot be written; empty if it can.
  std::string storage_problem_;
  // Says why the coordinator has stood down; empty if it has not.
  std::string replaced_because_;
  // True if the event that says so is recorded.
  bool replacement_recorded_ = false;
};

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_H_
