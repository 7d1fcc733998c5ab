// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/quarantine.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

using State = v1::QuarantinedContribution;

std::string Describe(const v1::ContributionHeader& header) {
  return absl::StrCat("the contribution of island ",
                      header.identity().island_id(), " (incarnation ",
                      header.identity().incarnation(), ") to fragment ",
                      header.fragment(), ", ", header.tokens(), " tokens");
}

IncarnationKey IncarnationOf(const v1::ContributionHeader& header) {
  return {header.identity().island_id(), header.identity().incarnation()};
}

}  // namespace

Quarantine::Quarantine(const v1::MembershipConfig& membership,
                       const std::vector<double>& first_usual,
                       const CoordinatorHistory& history, TokenLedger* ledger)
    : ledger_(ledger) {
  for (size_t fragment = 0; fragment < first_usual.size(); ++fragment) {
    NormGuard& guard =
        guards_.emplace_back(membership.outlier_factor(),
                             membership.max_islands(), first_usual[fragment]);
    if (fragment >= history.merged_norms.size()) continue;
    const uint64_t live = fragment < history.last_rounds.size()
                              ? history.last_rounds[fragment].live()
                              : 0;
    for (const NormGuard::MergedRound& round : history.merged_norms[fragment]) {
      guard.Merged(round, live);
    }
  }
  for (const CoordinatorHistory::Settled& sum : history.settled) {
    if (sum.fate == TokenLedger::Fate::kMerged ||
        sum.fate == TokenLedger::Fate::kPartial) {
      uint64_t& until = merged_until_[{sum.key.island_id, sum.fragment}];
      until = std::max(until, sum.base_version + 1);
    }
  }
  for (const QuarantineEntry& entry : history.quarantine) {
    entries_.emplace(entry.id, entry);
  }
}

std::string Quarantine::Objection(const v1::ContributionHeader& header,
                                  double norm, const RankParts& parts,
                                  uint64_t first_version) const {
  const auto until =
      merged_until_.find({header.identity().island_id(), header.fragment()});
  const uint64_t begin =
      until != merged_until_.end() ? until->second : first_version;
  const uint64_t base = header.base_version();
  return guards_[header.fragment()].Objection(
      {.norm = norm, .inner_steps = header.inner_steps()},
      base > begin ? base - begin + 1 : 1, parts);
}

void Quarantine::Hold(const v1::ContributionHeader& header, double norm,
                      absl::string_view reason, bool admissible, absl::Time now,
                      Effects& effects) {
  const uint64_t id = entries_.empty() ? 1 : entries_.rbegin()->first + 1;
  QuarantineEntry& entry = entries_[id];
  entry = {.id = id,
           .header = header,
           .norm = norm,
           .reason = std::string(reason),
           .quarantined_at = now,
           .admissible = admissible};
  ledger_->Settle(IncarnationOf(header), header.fragment(),
                  TokenLedger::Fate::kQuarantined, header.tokens(),
                  header.restored_tokens());
  effects.quarantine.push_back(entry);
  effects.events.push_back(
      {"contribution_quarantined", header.identity().island_id(),
       absl::StrCat(Describe(header), ", is in quarantine as number ", id, ": ",
                    reason)});
  // Entries in a round count, too.
  const auto held = absl::c_count_if(entries_, [](const auto& each) {
    return each.second.state == State::HELD;
  });
  if (static_cast<size_t>(held) <= kMostHeld) return;
  for (auto& [oldest, candidate] : entries_) {
    if (candidate.state != State::HELD || candidate.in_round) continue;
    return DropEntry(candidate, effects);
  }
}

absl::StatusOr<const QuarantineEntry*> Quarantine::Find(uint64_t id) const {
  const auto found = entries_.find(id);
  if (found != entries_.end()) return &found->second;
  return absl::NotFoundError(
      absl::StrCat("there is no quarantined contribution ", id));
}

absl::StatusOr<bool> Quarantine::IsAdmitted(uint64_t id) const {
  ASSIGN_OR_RETURN(const QuarantineEntry* const entry, Find(id));
  if (entry->state == State::ADMITTED || entry->in_round) return true;
  if (entry->state == State::HELD && entry->admissible) return false;
  return absl::FailedPreconditionError(
      absl::StrCat("contribution ", id,
                   entry->state == State::DROPPED
                       ? " was dropped"
                       : absl::StrCat(" cannot be merged: ", entry->reason)));
}

void Quarantine::Admit(uint64_t id, Round& round, absl::Time now,
                       Effects& effects) {
  QuarantineEntry& entry = entries_.at(id);
  v1::ContributionHeader header = entry.header;
  header.set_base_version(round.base_version());
  entry.in_round = true;
  in_rounds_[KeyOf(header)] = id;
  round.Add(header, entry.norm, now);
  effects.events.push_back(
      {"contribution_admitted", header.identity().island_id(),
       absl::StrCat(Describe(header), ", goes from the quarantine into round ",
                    header.base_version() + 1)});
}

absl::Status Quarantine::Drop(uint64_t id, Effects& effects) {
  RETURN_IF_ERROR(Find(id).status());
  QuarantineEntry& entry = entries_.at(id);
  if (entry.state == State::ADMITTED || entry.in_round) {
    return absl::FailedPreconditionError(
        absl::StrCat("contribution ", id, " was admitted"));
  }
  if (entry.state == State::HELD) DropEntry(entry, effects);
  return absl::OkStatus();
}

void Quarantine::DropEntry(QuarantineEntry& entry, Effects& effects) {
  entry.state = State::DROPPED;
  const v1::ContributionHeader& header = entry.header;
  Unbook(header);
  ledger_->Settle(IncarnationOf(header), header.fragment(),
                  TokenLedger::Fate::kRefused, header.tokens(),
                  header.restored_tokens());
  effects.quarantine.push_back(entry);
  effects.events.push_back(
      {"contribution_dropped", header.identity().island_id(),
       absl::StrCat(Describe(header), ", is dropped from the quarantine")});
}

void Quarantine::Unbook(const v1::ContributionHeader& header) {
  ledger_->Unquarantine(IncarnationOf(header), header.fragment(),
                        header.tokens(), header.restored_tokens());
}

std::optional<uint64_t> Quarantine::FindInRound(
    const ContributionKey& key) const {
  const auto found = in_rounds_.find(key);
  if (found == in_rounds_.end()) return std::nullopt;
  return found->second;
}

bool Quarantine::Merged(const v1::ContributionHeader& header,
                        Effects& effects) {
  merged_until_[{header.identity().island_id(), header.fragment()}] =
      header.base_version() + 1;
  const auto admitted = in_rounds_.find(KeyOf(header));
  if (admitted == in_rounds_.end()) return false;
  QuarantineEntry& entry = entries_.at(admitted->second);
  entry.state = State::ADMITTED;
  entry.in_round = false;
  Unbook(header);
  effects.quarantine.push_back(entry);
  in_rounds_.erase(admitted);
  return true;
}

void Quarantine::RoundMerged(const ClosedRound& closed) {
  NormGuard::MergedRound merged;
  for (size_t i = 0; i < closed.contributions.size(); ++i) {
    merged.push_back({.norm = closed.norms[i],
                      .inner_steps = closed.contributions[i].inner_steps()});
  }
  guards_[closed.fragment].Merged(std::move(merged),
                                  closed.participation.live());
}

bool Quarantine::TakeBack(const ContributionKey& key, absl::string_view reason,
                          Effects& effects) {
  const auto admitted = in_rounds_.find(key);
  if (admitted == in_rounds_.end()) return false;
  QuarantineEntry& entry = entries_.at(admitted->second);
  entry.in_round = false;
  entry.admissible = false;
  entry.reason = std::string(reason);
  in_rounds_.erase(admitted);
  effects.quarantine.push_back(entry);
  return true;
}

uint32_t Quarantine::held_count() const {
  return static_cast<uint32_t>(absl::c_count_if(entries_, [](const auto& each) {
    return each.second.state == State::HELD && !each.second.in_round;
  }));
}

absl::Time Quarantine::held_since() const {
  absl::Time since = absl::InfiniteFuture();
  for (const auto& [id, entry] : entries_) {
    if (entry.state == State::HELD && !entry.in_round) {
      since = std::min(since, entry.quarantined_at);
    }
  }
  return since;
}

bool Quarantine::WasAdmitted(const IncarnationKey& key,
                             const std::string& digest) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& each) {
    const QuarantineEntry& entry = each.second;
    return IncarnationOf(entry.header) == key &&
           entry.header.object().digest() == digest &&
           (entry.in_round || entry.state == State::ADMITTED);
  });
}

}  // namespace causeway
