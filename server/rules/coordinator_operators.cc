// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that serves operators, and the quarantine.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/rules/coordinator.h"

namespace causeway {
namespace {

std::string Because(absl::string_view reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

std::string Describe(const v1::ContributionHeader& header) {
  return absl::StrCat("the contribution of island ",
                      header.identity().island_id(), " (incarnation ",
                      header.identity().incarnation(), ") to fragment ",
                      header.fragment(), ", ", header.tokens(), " tokens");
}

}  // namespace

absl::Status Coordinator::Pause(absl::string_view reason, Effects& effects) {
  if (IsFinished()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "run ", options_.run_id, " is finished; there is nothing to pause"));
  }
  if (flags_.paused) return absl::OkStatus();
  flags_.paused = true;
  flags_.pause_reason =
      reason.empty() ? "paused by an operator" : std::string(reason);
  effects.flags = flags_;
  effects.events.push_back(
      {"run_paused", "", absl::StrCat("the run is paused", Because(reason))});
  effects.view_changed = true;
  return absl::OkStatus();
}

absl::Status Coordinator::Resume(absl::Time now, Effects& effects) {
  if (!flags_.paused) return absl::OkStatus();
  flags_.paused = false;
  flags_.pause_reason.clear();
  effects.flags = flags_;
  effects.events.push_back({"run_resumed", "", "the run goes on"});
  effects.view_changed = true;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    MaybeClose(fragment, now, effects);
  }
  return absl::OkStatus();
}

absl::Status Coordinator::Drain(const std::string& island_id,
                                absl::string_view reason, Effects& effects) {
  ASSIGN_OR_RETURN(Member* const member, membership_.FindLive(island_id));
  if (member->draining) return absl::OkStatus();
  member->draining = true;
  effects.changed.push_back(*member);
  effects.events.push_back(
      {"island_draining", island_id,
       absl::StrCat("island ", island_id, " is asked to leave",
                    Because(reason))});
  effects.view_changed = true;
  return absl::OkStatus();
}

absl::Status Coordinator::Evict(const std::string& island_id,
                                absl::string_view reason, absl::Time now,
                                Effects& effects) {
  Member* member = membership_.FindMissed(island_id);
  v1::IslandStatus::State state = v1::IslandStatus::EVICTED;
  if (member != nullptr) {
    state = member->state;
  } else {
    ASSIGN_OR_RETURN(member, membership_.FindLive(island_id));
  }
  EndMember(*member, state, absl::StrCat(kByOperator, Because(reason)), now,
            effects);
  return absl::OkStatus();
}

absl::StatusOr<ContributionKey> Coordinator::Admit(uint64_t id, absl::Time now,
                                                   Effects& effects) {
  const auto found = quarantine_.find(id);
  if (found == quarantine_.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no quarantined contribution ", id));
  }
  QuarantineEntry& entry = found->second;
  v1::ContributionHeader header = entry.header;
  Round& round = rounds_[header.fragment()];
  header.set_base_version(round.base_version());
  if (entry.state == v1::QuarantinedContribution::ADMITTED || entry.in_round) {
    return KeyOf(header);
  }
  if (entry.state == v1::QuarantinedContribution::DROPPED ||
      !entry.admissible) {
    return absl::FailedPreconditionError(
        absl::StrCat("contribution ", id,
                     entry.state == v1::QuarantinedContribution::DROPPED
                         ? " was dropped"
                         : absl::StrCat(" cannot be merged: ", entry.reason)));
  }
  RETURN_IF_ERROR(CheckHeader(header));
  if (round.base_version() >= schedule().FinalVersion(header.fragment())) {
    return absl::FailedPreconditionError(
        absl::StrCat("fragment ", header.fragment(), " has its last version, ",
                     round.base_version(), ", and takes no contributions"));
  }
  if (round.merging()) {
    return absl::UnavailableError(
        absl::StrCat("fragment ", header.fragment(),
                     " is being merged at this moment; repeat the call"));
  }
  const ContributionKey key = KeyOf(header);
  entry.in_round = true;
  admitted_[key] = id;
  round.Add(header, entry.norm, now);
  effects.events.push_back(
      {"contribution_admitted", key.island_id,
       absl::StrCat(Describe(header), ", goes from the quarantine into round ",
                    key.base_version + 1)});
  MaybeClose(header.fragment(), now, effects);
  return key;
}

absl::Status Coordinator::Drop(uint64_t id, Effects& effects) {
  const auto found = quarantine_.find(id);
  if (found == quarantine_.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no quarantined contribution ", id));
  }
  QuarantineEntry& entry = found->second;
  if (entry.state == v1::QuarantinedContribution::ADMITTED || entry.in_round) {
    return absl::FailedPreconditionError(
        absl::StrCat("contribution ", id, " was admitted"));
  }
  if (entry.state == v1::QuarantinedContribution::HELD)
    DropEntry(entry, effects);
  return absl::OkStatus();
}

void Coordinator::DropEntry(QuarantineEntry& entry, Effects& effects) {
  entry.state = v1::QuarantinedContribution::DROPPED;
  const v1::ContributionHeader& header = entry.header;
  const IncarnationKey key{header.identity().island_id(),
                           header.identity().incarnation()};
  ledger_.Unquarantine(key, header.fragment(), header.tokens(),
                       header.restored_tokens());
  ledger_.Settle(key, header.fragment(), TokenLedger::Fate::kRefused,
                 header.tokens(), header.restored_tokens());
  effects.quarantine.push_back(entry);
  effects.events.push_back(
      {"contribution_dropped", key.island_id,
       absl::StrCat(Describe(header), ", is dropped from the quarantine")});
}

void Coordinator::Quarantine(const v1::ContributionHeader& header, double norm,
                             absl::string_view reason, bool admissible,
                             absl::Time now, Effects& effects) {
  const uint64_t id = quarantine_.empty() ? 1 : quarantine_.rbegin()->first + 1;
  const IncarnationKey key{header.identity().island_id(),
                           header.identity().incarnation()};
  QuarantineEntry& entry = quarantine_[id];
  entry = {.id = id,
           .header = header,
           .norm = norm,
           .reason = std::string(reason),
           .quarantined_at = now,
           .admissible = admissible};
  ledger_.Settle(key, header.fragment(), TokenLedger::Fate::kQuarantined,
                 header.tokens(), header.restored_tokens());
  effects.quarantine.push_back(entry);
  effects.events.push_back(
      {"contribution_quarantined", key.island_id,
       absl::StrCat(Describe(header), ", is in quarantine as number ", id, ": ",
                    reason)});
  const auto member = membership_.Check(header.identity());
  if (member.ok()) {
    EndMember(**member, v1::IslandStatus::DIVERGED,
              absl::StrCat("of its contribution to fragment ",
                           header.fragment(), ", ", reason),
              now, effects);
  }
  if (held_count() <= kMaxHeldContributions) return;
  for (auto& [oldest, candidate] : quarantine_) {
    if (candidate.state != v1::QuarantinedContribution::HELD ||
        candidate.in_round) {
      continue;
    }
    return DropEntry(candidate, effects);
  }
}

}  // namespace causeway
