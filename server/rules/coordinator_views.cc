// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that answers what islands and people ask.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/rules/coordinator.h"
#include "server/rules/inner_steps.h"

namespace causeway {
namespace {

const char* KindOf(const v1::RankTrouble& trouble) {
  switch (trouble.kind()) {
    case v1::RankTrouble::SLOW_RANK:
      return "rank_slow";
    case v1::RankTrouble::SLOW_LINK:
      return "link_slow";
    case v1::RankTrouble::STUCK_RANK:
      return "rank_stuck";
    case v1::RankTrouble::DEAD_RANK:
      return "rank_dead";
    case v1::RankTrouble::CORRUPT_RANK:
      return "rank_corrupt";
    case v1::RankTrouble::RETURNED_RANK:
      return "rank_back";
    default:
      // No trouble, or a kind that only newer islands know.
      return "ranks_even";
  }
}

}  // namespace

absl::Status Coordinator::Check(const v1::IslandIdentity& identity) {
  return FindTransferring(identity).status();
}

absl::StatusOr<Member*> Coordinator::FindCaller(
    const v1::IslandIdentity& identity) {
  RETURN_IF_ERROR(
      Hear(identity.run_id(), identity.island_id(), identity.epoch()));
  return membership_.Check(identity);
}

absl::StatusOr<Member*> Coordinator::FindTransferring(
    const v1::IslandIdentity& identity) {
  ASSIGN_OR_RETURN(Member* const member, FindCaller(identity));
  if (identity.epoch() == 0 || identity.epoch() == options_.epoch) {
    return member;
  }
  return absl::UnavailableError(
      absl::StrCat("island ", identity.island_id(), " knows epoch ",
                   identity.epoch(), " only, and this coordinator's is ",
                   options_.epoch, ": the control stream must tell it first"));
}

absl::Status Coordinator::Hear(absl::string_view run_id,
                               absl::string_view island_id, uint64_t epoch) {
  if (epoch > options_.epoch && run_id == options_.run_id) {
    replaced_because_ = absl::StrCat(
        "this coordinator, of epoch ", options_.epoch,
        ", was replaced by one of epoch ", epoch, ", which has the run now",
        island_id.empty() ? ""
                          : absl::StrCat(" (island ", island_id, " says so)"),
        ": use that one's address, and stop this one. If there is no such "
        "coordinator, because this one's state is from a backup, start this "
        "one again with --promote --above_epoch=",
        epoch);
  }
  return CheckInOffice();
}

absl::Status Coordinator::CheckInOffice() const {
  return replaced_because_.empty() ? absl::OkStatus()
                                   : absl::UnavailableError(replaced_because_);
}

absl::StatusOr<bool> Coordinator::IsAwaited(
    const v1::FetchUpdateRequest& request) {
  ASSIGN_OR_RETURN(Member* const member, FindTransferring(request.identity()));
  const uint32_t fragment = request.fragment();
  const bool awaited =
      request.wait() && fragment < heads_.size() &&
      heads_[fragment].head.version() == request.from_version() &&
      request.from_version() < schedule().FinalVersion(fragment);
  if (awaited) {
    member->awaited_version.resize(heads_.size());
    member->awaited_version[fragment] = request.from_version() + 1;
  }
  return awaited;
}

void Coordinator::DescribeMerged(const v1::FetchUpdateRequest& request,
                                 absl::Span<const ContributionRecord> merged,
                                 v1::FetchUpdateResponse& response) const {
  for (const ContributionRecord& record : merged) {
    if (record.digest == request.contribution_digest()) {
      response.set_includes_island(true);
    } else if (!quarantine_.WasAdmitted({record.island_id, record.incarnation},
                                        record.digest)) {
      response.set_other_tokens(response.other_tokens() + record.tokens);
      response.set_other_inner_steps(response.other_inner_steps() +
                                     record.inner_steps);
    }
  }
}

v1::SessionResponse Coordinator::View(const v1::IslandIdentity& identity) {
  v1::SessionResponse view;
  view.set_run_state(run_state());
  view.set_message(message());
  view.set_run_step(RunStep());
  view.set_epoch(options_.epoch);
  view.set_islands_missing(
      IslandsNeeded() - std::min(IslandsNeeded(), membership_.ready_count()));
  for (const CommittedFragment& state : heads_) *view.add_heads() = state.head;
  const auto member = membership_.Check(identity);
  if (member.ok()) {
    for (const uint64_t version : (*member)->first_contribution_version) {
      view.add_first_contribution_version(version);
    }
    view.set_drain((*member)->draining);
    view.set_inner_steps_per_round(InnerStepsPerRound(**member));
    if ((*member)->uplink_bits.has_value()) {
      view.set_uplink_bits((*member)->uplink_bits->bits());
    }
    if (view.message().empty() && DataDiffers(**member)) {
      view.set_message(
          "this island reads other data than the run's: the files differ, or "
          "their order; it trains, but does not measure the merged model");
    }
    if (Validator() == *member) {
      *view.mutable_validation() = options_.config.validation();
    }
  }
  return view;
}

std::optional<v1::SessionResponse> Coordinator::News(
    const v1::IslandIdentity& identity, v1::SessionResponse shown) {
  v1::SessionResponse view = View(identity);
  const auto member = membership_.Check(identity);
  if (member.ok() && shown.heads_size() == view.heads_size()) {
    const std::vector<uint64_t>& awaited = (*member)->awaited_version;
    for (size_t fragment = 0; fragment < awaited.size(); ++fragment) {
      const v1::FragmentHead& head = view.heads(static_cast<int>(fragment));
      if (head.version() <= awaited[fragment]) {
        *shown.mutable_heads(static_cast<int>(fragment)) = head;
      }
    }
  }
  shown.set_run_step(view.run_step());
  shown.set_inner_steps_per_round(view.inner_steps_per_round());
  if (shown.SerializeAsString() == view.SerializeAsString()) {
    return std::nullopt;
  }
  return view;
}

v1::RunState Coordinator::run_state() const {
  if (!replaced_because_.empty()) return v1::SUSPENDED;
  if (IsFinished()) return v1::FINISHED;
  if (flags_.paused) return v1::PAUSED;
  if (!suspended_because().empty()) return v1::SUSPENDED;
  return flags_.started ? v1::RUNNING : v1::WAITING_FOR_ISLANDS;
}

std::vector<uint64_t> Coordinator::Versions() const {
  std::vector<uint64_t> versions;
  for (const CommittedFragment& state : heads_) {
    versions.push_back(state.head.version());
  }
  return versions;
}

uint64_t Coordinator::RunStep() {
  uint64_t reported = 0;
  for (const Member* member : membership_.Live()) {
    reported = std::max<uint64_t>(reported, member->progress.run_step());
  }
  return schedule().ClampToVersions(reported, Versions());
}

bool Coordinator::IsSilent(const std::string& island_id) const {
  return std::any_of(rounds_.begin(), rounds_.end(), [&](const Round& round) {
    return round.IsSilent(island_id);
  });
}

bool Coordinator::IsFinished() const {
  for (uint32_t fragment = 0; fragment < heads_.size(); ++fragment) {
    if (heads_[fragment].head.version() < schedule().FinalVersion(fragment)) {
      return false;
    }
  }
  return true;
}

uint64_t Coordinator::InnerStepsPerRound(const Member& member) {
  std::vector<absl::Duration> steps;
  steps.reserve(membership_.live_count());
  for (const Member* live : membership_.Live()) {
    // A silent island sets no pace for others.
    if (live != &member && IsSilent(live->island_id)) continue;
    steps.push_back(absl::Seconds(live->progress.step_seconds()));
  }
  const v1::SynchronizationConfig& sync = options_.config.synchronization();
  const v1::MembershipConfig& membership = options_.config.membership();
  return InnerSteps(
      {.steps = sync.inner_steps_per_round(),
       .shares = sync.inner_step_shares(),
       .quorum = membership.quorum(),
       .grace = absl::Seconds(membership.grace_seconds()),
       .grace_overlap_share = membership.grace_overlap_share(),
       .overlap_steps = schedule().overlap_steps() + sync.max_overlap_steps()},
      absl::Seconds(member.progress.step_seconds()), std::move(steps));
}

bool Coordinator::IsLive(const IncarnationKey& key) const {
  const auto found = membership_.members().find(key.island_id);
  return found != membership_.members().end() &&
         found->second.incarnation == key.incarnation &&
         found->second.state == v1::IslandStatus::LIVE;
}

std::map<IncarnationKey, OpenTokens> Coordinator::Open(
    uint32_t fragment, const std::string& island_id) const {
  const Round& round = rounds_[fragment];
  std::map<IncarnationKey, OpenTokens> open;
  for (auto each = round.contributions().lower_bound(
           {fragment, round.base_version(), island_id, 0});
       each != round.contributions().end() &&
       each->first.island_id == island_id;
       ++each) {
    // Admitted contributions are booked as quarantined until they are merged.
    if (quarantine_.FindInRound(each->first)) continue;
    open[{island_id, each->first.incarnation}] = {
        .tokens = each->second.tokens(),
        .restored = each->second.restored_tokens()};
  }
  return open;
}

v1::TokenLedger Coordinator::FragmentLedger(uint32_t fragment) const {
  return ledger_.Sum(
      fragment, [this](const IncarnationKey& key) { return IsLive(key); },
      [=, this](const std::string& island_id) {
        return Open(fragment, island_id);
      });
}

v1::TokenLedger Coordinator::IslandLedger(const IncarnationKey& key) const {
  v1::TokenLedger sum;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    AddTo(ledger_.Account(key, fragment, IsLive(key),
                          Open(fragment, key.island_id)),
          sum);
  }
  return sum;
}

void Coordinator::NoteTrouble(const std::string& island_id,
                              const v1::RankTrouble& before,
                              const v1::RankTrouble& now, Effects& effects) {
  if (now.kind() == before.kind() && now.rank() == before.rank() &&
      now.to_rank() == before.to_rank()) {
    return;
  }
  // The rank's return or the island's restart already says that this is over.
  if (now.kind() == v1::RankTrouble::KIND_UNSPECIFIED &&
      (before.kind() == v1::RankTrouble::DEAD_RANK ||
       before.kind() == v1::RankTrouble::STUCK_RANK ||
       before.kind() == v1::RankTrouble::CORRUPT_RANK ||
       before.kind() == v1::RankTrouble::RETURNED_RANK)) {
    return;
  }
  effects.events.push_back(
      {KindOf(now), island_id,
       absl::StrCat("island ", island_id, ": ",
                    now.text().empty() ? "no rank and no link is slow any more"
                                       : now.text())});
}

}  // namespace causeway
