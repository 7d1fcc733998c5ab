// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/coordinator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/transport/field_limits.h"
#include "glog/logging.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"

namespace causeway {
namespace {

// The first contributions may change a parameter by this much in the root mean
// square, before outlier_factor applies, because some fragments begin with
// zeros.
constexpr double kLeastUsualChange = 0.1;

std::vector<double> FirstUsualNorms(
    const v1::FragmentPlan& plan,
    const std::vector<Coordinator::CommittedFragment>& heads) {
  CHECK_EQ(heads.size(), static_cast<size_t>(plan.fragments_size()));
  std::vector<double> norms;
  for (const v1::Fragment& fragment : plan.fragments()) {
    norms.push_back(std::max(
        heads[norms.size()].parameter_norm,
        kLeastUsualChange * std::sqrt(static_cast<double>(fragment.size()))));
  }
  return norms;
}

// `header` has an object of the fragment's size.
absl::Status CheckRankEnds(const v1::ContributionHeader& header) {
  const auto& ends = header.rank_ends();
  if (ends.empty()) return absl::OkStatus();
  if (ends.size() > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank_ends has ", ends.size(), " ranks; at most ",
                     kMostRanks, " are allowed"));
  }
  const auto later = std::is_sorted_until(ends.begin(), ends.end());
  if (later != ends.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank_ends[", later - ends.begin(), "], ", *later,
        ", is below the one before it, ", *(later - 1),
        "; ranks hold consecutive parts of the fragment, in their order"));
  }
  const uint64_t last = ends.Get(ends.size() - 1);
  if (last != header.object().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank_ends ends with ", last,
                     ", but the contribution has ", header.object().size(),
                     " values; the ranks' parts must be the whole of it"));
  }
  return absl::OkStatus();
}

}  // namespace

Coordinator::Coordinator(Options options, std::vector<CommittedFragment> heads,
                         std::vector<Member> members, absl::Time now,
                         CoordinatorHistory history)
    : options_(std::move(options)),
      heads_(std::move(heads)),
      membership_({.run_id = options_.run_id,
                   .max_islands = options_.config.membership().max_islands(),
                   .shards = options_.config.data().shards(),
                   .lease = absl::Seconds(
                       options_.config.membership().lease_seconds())}),
      expectations_(&options_.config.membership(), &options_.schedule,
                    &membership_),
      claims_(options_.config, &options_.schedule),
      ledger_(static_cast<uint32_t>(heads_.size())),
      quarantine_(options_.config.membership(),
                  FirstUsualNorms(options_.plan, heads_), history, &ledger_),
      participation_(std::move(history.participation)),
      last_rounds_(std::move(history.last_rounds)),
      training_(std::move(history.training)),
      validation_(std::move(history.validation)),
      flags_(std::move(history.flags)),
      paused_at_(now) {
  for (uint32_t fragment = 0; fragment < heads_.size(); ++fragment) {
    rounds_.push_back(NewRound(fragment));
    flags_.started |= heads_[fragment].head.version() > 0;
  }
  last_rounds_.resize(heads_.size());
  for (const AccountRecord& account : history.accounts) {
    ledger_.Restore(account);
  }
  for (const CoordinatorHistory::Settled& sum : history.settled) {
    ledger_.Settle(sum.key, sum.fragment, sum.fate, sum.tokens, sum.restored);
  }
  for (Member& member : members) {
    if (member.first_contribution_version.size() != heads_.size()) {
      member.first_contribution_version = Versions();
    }
    membership_.Restore(std::move(member), now);
  }
  FoldAccounts();
  flags_.started |=
      membership_.ready_count() >= options_.config.membership().min_islands();
}

Round Coordinator::NewRound(uint32_t fragment,
                            std::set<std::string> silent) const {
  const v1::MembershipConfig& membership = options_.config.membership();
  return Round({.quorum = membership.quorum(),
                .grace = absl::Seconds(membership.grace_seconds())},
               fragment, heads_[fragment].head.version(), std::move(silent));
}

absl::StatusOr<v1::JoinResponse> Coordinator::Join(
    const v1::JoinRequest& request, absl::Time now, Effects& effects) {
  RETURN_IF_ERROR(
      Hear(request.expected_run_id(), request.island_id(), request.epoch()));
  if (IsFinished()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", options_.run_id,
                     " is finished: every fragment has its last version"));
  }
  // Do not wait for a process that is known to be dead.
  if (Member* const dead = membership_.Replaced(request); dead != nullptr) {
    EndMember(*dead, v1::IslandStatus::EVICTED, "its process was restarted",
              now, effects);
  }
  const uint64_t run_step = RunStep();
  ASSIGN_OR_RETURN(const Membership::JoinResult joined,
                   membership_.Join(request, now));
  Member& member = *joined.member;
  if (joined.is_new) {
    member.first_contribution_version.assign(heads_.size(),
                                             Member::kNotExpected);
    for (const CommittedFragment& state : heads_) {
      claims_.Joined(member.island_id, member.incarnation,
                     state.head.fragment(), state.head.version());
    }
    member.progress.set_run_step(run_step);
    effects.joined.push_back(member);
    const IncarnationKey key{member.island_id, member.incarnation};
    ledger_.Open(key, request.instance_id());
    TakeOver(key, effects);
    FoldAccounts();
    effects.events.push_back(
        {"island_joined", member.island_id,
         absl::StrCat("island ", member.island_id, " joined (incarnation ",
                      member.incarnation, ", shard ", ShardOf(member),
                      ") at step ", run_step)});
    effects.view_changed = true;
  }

  v1::JoinResponse response;
  v1::IslandIdentity& identity = *response.mutable_identity();
  identity.set_run_id(options_.run_id);
  identity.set_island_id(member.island_id);
  identity.set_incarnation(member.incarnation);
  identity.set_epoch(options_.epoch);
  *response.mutable_config() = options_.config;
  *response.mutable_plan() = options_.plan;
  for (const CommittedFragment& state : heads_) {
    *response.add_heads() = state.head;
  }
  response.set_run_step(run_step);
  for (const uint64_t version : member.first_contribution_version) {
    response.add_first_contribution_version(version);
  }
  response.set_shard(ShardOf(member));
  response.set_shards(options_.config.data().shards());
  response.set_data_order(member.place / response.shards());
  response.set_run_state(run_state());
  return response;
}

absl::Status Coordinator::Heartbeat(const v1::IslandIdentity& identity,
                                    const v1::IslandProgress& progress,
                                    absl::Time now, Effects& effects) {
  ASSIGN_OR_RETURN(Member* const member, FindCaller(identity));
  member->last_heartbeat = now;
  TakeReport(*member, progress, now, effects);
  if (progress.ready() && !member->IsReady()) BecomeReady(*member, effects);
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    RefreshExpectations(fragment, now, effects);
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CheckHeader(
    const v1::ContributionHeader& header) const {
  if (header.fragment() >= heads_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no fragment ", header.fragment(), "; the run has ",
        heads_.size(), " (0 to ", heads_.size() - 1, ")"));
  }
  if (header.tokens() == 0 || header.inner_steps() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a contribution of ", header.tokens(), " tokens and ",
                     header.inner_steps(),
                     " inner steps has no weight; both must be above 0"));
  }
  const uint64_t most_steps = claims_.most_steps();
  const uint64_t most_tokens = claims_.MostTokens(most_steps);
  if (header.inner_steps() > most_steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("a contribution cannot have ", header.inner_steps(),
                     " inner steps; allowed: up to ", most_steps,
                     ", twice the steps of the run"));
  }
  if (header.tokens() > most_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("a contribution cannot have ", header.tokens(),
                     " tokens; allowed: up to ", most_tokens,
                     ", what an island trains in twice the steps of the run"));
  }
  if (header.restored_tokens() > header.tokens()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a contribution of ", header.tokens(), " tokens cannot have ",
        header.restored_tokens(), " from a checkpoint"));
  }
  const v1::SynchronizationConfig& sync = options_.config.synchronization();
  const absl::Status fits =
      CheckOffer(header.object(), UplinkSpec(sync),
                 options_.plan.fragments(header.fragment()).size());
  if (absl::IsFailedPrecondition(fits)) {
    return absl::FailedPreconditionError(
        absl::StrCat(fits.message(),
                     "; if the configuration has changed since the island "
                     "joined, start the island again"));
  }
  RETURN_IF_ERROR(fits);
  return CheckRankEnds(header);
}

absl::StatusOr<v1::ContributeResponse> Coordinator::Offer(
    const v1::ContributionHeader& header, absl::Time now) {
  ASSIGN_OR_RETURN(Member* const member, FindTransferring(header.identity()));
  RETURN_IF_ERROR(CheckHeader(header));
  member->last_heartbeat = now;
  const uint32_t fragment = header.fragment();
  Round& round = rounds_[fragment];
  round.NoteHeard(member->island_id);
  v1::ContributeResponse response;
  if (header.base_version() > round.base_version()) {
    return absl::OutOfRangeError(absl::StrCat(
        "fragment ", fragment, " is at version ", round.base_version(),
        ", but the contribution builds on version ", header.base_version(),
        ", which was lost with another coordinator, or before a backup was "
        "restored; start again from the run's parameters"));
  }
  if (header.base_version() < round.base_version()) {
    response.set_verdict(v1::ContributeResponse::LATE);
    return response;
  }
  if (round.base_version() >= schedule().FinalVersion(fragment)) {
    return absl::FailedPreconditionError(
        absl::StrCat("fragment ", fragment, " has its last version, ",
                     round.base_version(), ", and takes no contributions"));
  }
  if (round.Has(member->island_id, member->incarnation) ||
      round.HasBytes(member->island_id, header.object().digest())) {
    // This also holds while the round is merged, because the outer step may
    // fail and the round open again.
    round.Credit(member->island_id, member->incarnation);
    response.set_verdict(v1::ContributeResponse::ACCEPTED);
    return response;
  }
  // If the island went back to a checkpoint, this offer may contain training
  // that an earlier process of it handed in. Only one of the two may count.
  const bool forgotten = round.HasIsland(member->island_id);
  if (forgotten) {
    round.StandIn(member->island_id, member->incarnation);
  } else if (round.merging()) {
    round.TurnAway(member->island_id, member->incarnation);
  }
  if (forgotten || round.merging()) {
    response.set_verdict(v1::ContributeResponse::LATE);
    return response;
  }
  // This also answers an island that acts on a view from before a restart: it
  // retries with a newer view.
  if (!flags_.started) {
    return absl::UnavailableError(absl::StrCat(
        "the run waits for ", options_.config.membership().min_islands(),
        " islands to be ready and takes no contributions yet"));
  }
  if (!member->IsReady()) {
    return absl::UnavailableError(
        absl::StrCat("island ", member->island_id,
                     " has not reported yet that it is ready to train"));
  }
  const uint64_t first = member->first_contribution_version[fragment];
  if (header.base_version() < first) {
    return absl::UnavailableError(absl::StrCat(
        "island ", member->island_id, " joined while the window of version ",
        header.base_version(),
        " was under way; its first contribution to "
        "fragment ",
        fragment, " builds on version ", first));
  }
  round.NoteOffer(member->island_id, now);
  response.set_verdict(v1::ContributeResponse::UPLOAD);
  return response;
}

absl::StatusOr<v1::ContributeResponse> Coordinator::Complete(
    const v1::ContributionHeader& claimed, double norm, const RankParts& parts,
    absl::Time now, Effects& effects) {
  // While the bytes were on their way, the round may have closed, or the island
  // may have been fenced off.
  ASSIGN_OR_RETURN(v1::ContributeResponse response, Offer(claimed, now));
  v1::ContributionHeader header = claims_.Bounded(claimed);
  // `parts` replaces these up to 20 kB.
  header.clear_rank_ends();
  Round& round = rounds_[header.fragment()];
  if (response.verdict() == v1::ContributeResponse::UPLOAD) {
    ASSIGN_OR_RETURN(const Member* const member,
                     membership_.Check(header.identity()));
    const std::string objection = quarantine_.Objection(
        header, norm, parts,
        member->first_contribution_version[header.fragment()]);
    if (!objection.empty()) {
      HoldBack(header, norm, objection, std::isfinite(norm), now, effects);
      return Check(header.identity());
    }
    if (IsLeftOut(header)) {
      round.Credit(header.identity().island_id(),
                   header.identity().incarnation());
      response.set_verdict(v1::ContributeResponse::LATE);
    }
  }
  if (response.verdict() == v1::ContributeResponse::LATE) {
    effects.discarded.push_back(KeyOf(header));
    effects.late.push_back(header);
    effects.events.push_back(
        {"contribution_late", header.identity().island_id(),
         absl::StrCat("round ", header.base_version() + 1, " of fragment ",
                      header.fragment(), " closed without island ",
                      header.identity().island_id(),
                      "; its progress goes into its next contribution")});
  } else if (response.verdict() == v1::ContributeResponse::UPLOAD) {
    round.Add(header, norm, now);
    quarantine_.Passed(header.fragment(), parts);
    response.set_verdict(v1::ContributeResponse::ACCEPTED);
  }
  MaybeClose(header.fragment(), now, effects);
  return response;
}

absl::Status Coordinator::Leave(const v1::LeaveRequest& request, absl::Time now,
                                Effects& effects) {
  ASSIGN_OR_RETURN(Member* const member, FindCaller(request.identity()));
  if (request.has_progress()) {
    TakeReport(*member, request.progress(), now, effects);
  }
  NoteTrouble(member->island_id, v1::RankTrouble(), request.rank_trouble(),
              effects);
  EndMember(*member,
            std::isfinite(request.progress().loss())
                ? v1::IslandStatus::LEFT
                : v1::IslandStatus::DIVERGED,
            request.reason().empty() ? "left" : request.reason(), now, effects);
  return absl::OkStatus();
}

void Coordinator::Tick(absl::Time now, Effects& effects) {
  // A coordinator that has stood down no longer decides anything.
  if (!replaced_because_.empty()) return RecordReplacement(effects);
  for (Member* member : membership_.Expired(now)) {
    EndMember(
        *member, v1::IslandStatus::EVICTED,
        absl::StrFormat("no heartbeat for %.1f s",
                        absl::ToDoubleSeconds(now - member->last_heartbeat)),
        now, effects);
  }
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    RefreshExpectations(fragment, now, effects);
    MaybeClose(fragment, now, effects);
  }
}

void Coordinator::EndMember(Member& member, v1::IslandStatus::State state,
                            absl::string_view reason, absl::Time now,
                            Effects& effects) {
  membership_.End(member, state, reason, now);
  effects.ended.push_back(member);
  effects.accounts.push_back(
      ledger_.Record({member.island_id, member.incarnation}));
  const bool left = state == v1::IslandStatus::LEFT;
  // The reason of one that failed says so.
  const bool failed = HasFailed(state, reason);
  effects.events.push_back(
      {failed ? "island_failed"
       : left ? "island_left"
              : "island_evicted",
       member.island_id,
       absl::StrCat("island ", member.island_id, " (incarnation ",
                    member.incarnation, ") ",
                    failed ? ""
                    : left ? "left: "
                           : "was evicted: ",
                    reason)});
  effects.view_changed = true;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    const ContributionKey key{.fragment = fragment,
                              .base_version = rounds_[fragment].base_version(),
                              .island_id = member.island_id,
                              .incarnation = member.incarnation};
    // An upload under way will not be completed, and others need its memory.
    if (!rounds_[fragment].contributions().contains(key)) {
      effects.discarded.push_back(key);
    }
    RefreshExpectations(fragment, now, effects);
    MaybeClose(fragment, now, effects);
  }
}

}  // namespace causeway
