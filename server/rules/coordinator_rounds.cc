// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that closes rounds and books their results.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/checksum.h"
#include "glog/logging.h"
#include "server/rules/coordinator.h"

namespace causeway {
namespace {

// The pause before a failed outer step is tried again: long enough not to
// hammer a full disk, short enough to use free space soon.
constexpr absl::Duration kRetryPause = absl::Seconds(5);

}  // namespace

void Coordinator::RefreshExpectations(uint32_t fragment, absl::Time now,
                                      Effects& effects) {
  Round& round = rounds_[fragment];
  if (!flags_.started || round.merging()) return;
  // In a pause, no island holds a round up.
  effects.view_changed |=
      expectations_.Refresh(round, flags_.paused ? paused_at_ : now);
}

void Coordinator::MaybeClose(uint32_t fragment, absl::Time now,
                             Effects& effects) {
  Round& round = rounds_[fragment];
  if (flags_.paused || !storage_problem_.empty() || !CheckInOffice().ok()) {
    return;
  }
  if (!expectations_.MayClose(round, outer_step_, now)) return;
  round.Close();
  ClosedRound closed{.fragment = fragment,
                     .base_version = round.base_version()};
  for (const auto& [key, header] : round.contributions()) {
    closed.contributions.push_back(header);
    closed.norms.push_back(round.NormOf(key));
    if (const auto admitted = quarantine_.FindInRound(key)) {
      closed.admitted.push_back(*admitted);
    }
  }
  closed.participation = expectations_.ParticipationIn(round);
  effects.outer_steps.push_back(std::move(closed));
}

bool Coordinator::IsLeftOut(const v1::ContributionHeader& header) {
  const v1::MembershipConfig& membership = options_.config.membership();
  if (membership.drop_contributions() == 0) return false;
  // The round must still be able to reach its quorum without it.
  if (expectations_.Reachable(rounds_[header.fragment()]) - 1 <
      membership.quorum()) {
    return false;
  }
  const std::string draw = Digest128(
      absl::StrCat(options_.config.seed(), "/", header.identity().island_id(),
                   "/", header.fragment(), "/", header.base_version()));
  uint64_t bits = 0;
  std::memcpy(&bits, draw.data(), sizeof(bits));
  return std::ldexp(static_cast<double>(bits), -64) <
         membership.drop_contributions();
}

std::vector<CoordinatorEvent> Coordinator::CommitEvents(
    const ClosedRound& closed, const OuterStepOutcome& outcome) const {
  std::vector<std::string> names;
  for (const v1::ContributionHeader& header : closed.contributions) {
    names.push_back(header.identity().island_id());
  }
  return {{"round_merged", "",
           absl::StrFormat(
               "fragment %d is at version %d: merged %s, norm %.4g, "
               "%s%.3f s",
               closed.fragment, outcome.head.version(),
               absl::StrJoin(names, ", "), outcome.merged_norm,
               outcome.similarity.has_value()
                   ? absl::StrFormat("similarity %.3f, ", *outcome.similarity)
                   : "",
               absl::ToDoubleSeconds(outcome.duration))}};
}

void Coordinator::OuterStepCommitted(const ClosedRound& closed,
                                     const OuterStepOutcome& outcome,
                                     absl::Time now, Effects& effects) {
  CommittedFragment& state = heads_[closed.fragment];
  CHECK_EQ(outcome.head.version(), closed.base_version + 1);
  CHECK_EQ(state.head.version(), closed.base_version);
  state.head = outcome.head;
  state.merged_norm = outcome.merged_norm;
  state.similarity = outcome.similarity;
  state.committed_at = now;
  failures_.erase(closed.fragment);
  for (const v1::ContributionHeader& header : closed.contributions) {
    Settle(header, effects);
  }
  quarantine_.RoundMerged(closed);
  outer_step_ = outcome.duration;
  last_rounds_[closed.fragment] = closed.participation;
  AddTo(closed.participation, participation_);
  training_.Merged(outcome.head, rounds_[closed.fragment].first_offer(), now,
                   outcome.similarity);
  Round& round = rounds_[closed.fragment];
  round = NewRound(closed.fragment, expectations_.Silent(round));
  NoteTraining(now, effects);
  // CommitEvents cannot tell, because the last commits may overlap.
  if (IsFinished()) effects.events.push_back(RunFinished());
  if (closed.fragment == 0) PlanUplinkBits(effects);
  effects.view_changed = true;
}

void Coordinator::OuterStepFailed(const ClosedRound& closed,
                                  const absl::Status& status, absl::Time now,
                                  Effects& effects) {
  if (!CheckInOffice().ok()) return;
  if (absl::IsOutOfRange(status)) {
    return SetAsideLargest(closed, status, now, effects);
  }
  rounds_[closed.fragment].Reopen(now + kRetryPause);
  OuterStepInDoubt(closed, status, effects);
}

void Coordinator::OuterStepInDoubt(const ClosedRound& closed,
                                   const absl::Status& status,
                                   Effects& effects) {
  if (failures_.empty()) {
    effects.events.push_back(
        {"run_suspended", "",
         absl::StrCat("fragment ", closed.fragment, " stays at version ",
                      closed.base_version, ": ", status.ToString())});
  }
  failures_[closed.fragment] = status.ToString();
  effects.view_changed = true;
}

void Coordinator::StorageChecked(const absl::Status& problem,
                                 Effects& effects) {
  const std::string text = problem.ok() ? "" : std::string(problem.message());
  if (text == storage_problem_) return;
  storage_problem_ = text;
  if (!problem.ok()) {
    effects.events.push_back(
        {"run_suspended", "", absl::StrCat("nothing is committed: ", text)});
  }
  effects.view_changed = true;
}

void Coordinator::StandDown(uint64_t epoch, Effects& effects) {
  if (!Hear(options_.run_id, "", epoch).ok()) RecordReplacement(effects);
}

void Coordinator::RecordReplacement(Effects& effects) {
  if (replacement_recorded_) return;
  replacement_recorded_ = true;
  effects.events.push_back({"coordinator_replaced", "", replaced_because_});
  effects.view_changed = true;
}

void Coordinator::SetAsideLargest(const ClosedRound& closed,
                                  const absl::Status& status, absl::Time now,
                                  Effects& effects) {
  // From now on this holds the fragment up, not the failure before, if any.
  failures_.erase(closed.fragment);
  size_t largest = 0;
  for (size_t i = 1; i < closed.norms.size(); ++i) {
    if (closed.norms[i] > closed.norms[largest]) largest = i;
  }
  const v1::ContributionHeader& header = closed.contributions[largest];
  const ContributionKey key = KeyOf(header);
  Round& round = rounds_[closed.fragment];
  round.Reopen(now);
  round.Remove(key);
  const std::string reason =
      absl::StrCat("the outer step fails with it (", status.message(), ")");
  if (quarantine_.TakeBack(key, reason, effects)) {
    effects.discarded.push_back(key);
  } else if (Check(header.identity()).ok()) {
    HoldBack(header, closed.norms[largest], reason, /*admissible=*/true, now,
             effects);
  } else {
    LeaveOut(header, reason, effects);
  }
  EndRefusedMembers(key, now, effects);
  effects.view_changed = true;
  RefreshExpectations(closed.fragment, now, effects);
  MaybeClose(closed.fragment, now, effects);
}

void Coordinator::LeaveOut(const v1::ContributionHeader& header,
                           absl::string_view reason, Effects& effects) {
  const std::string& island = header.identity().island_id();
  effects.discarded.push_back(KeyOf(header));
  effects.late.push_back(header);
  effects.events.push_back(
      {"contribution_late", island,
       absl::StrCat("the contribution of island ", island, " (incarnation ",
                    header.identity().incarnation(), ") is left out of round ",
                    header.base_version() + 1, " of fragment ",
                    header.fragment(), ": ", reason)});
  const absl::StatusOr<Member*> next = membership_.FindLive(island);
  if (next.ok()) TakeOver({island, (*next)->incarnation}, effects);
}

void Coordinator::TakeOver(const IncarnationKey& key, Effects& effects) {
  // The contributions to the open round of each fragment.
  std::vector<std::map<IncarnationKey, OpenTokens>> open;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    open.push_back(Open(fragment, key.island_id));
  }
  for (const IncarnationKey& old : ledger_.OfSameProcess(key)) {
    std::vector<OpenTokens> open_of_old;
    for (auto& tokens : open) open_of_old.push_back(tokens[old]);
    // The earlier incarnations may be many, most of them without a token left.
    if (ledger_.TakeOver(old, key, open_of_old)) {
      effects.accounts.push_back(ledger_.Record(old));
    }
  }
  effects.accounts.push_back(ledger_.Record(key));
}

void Coordinator::FoldAccounts() {
  std::set<IncarnationKey> open;
  for (const Round& round : rounds_) {
    for (const auto& [key, header] : round.contributions()) {
      open.insert({key.island_id, key.incarnation});
    }
  }
  ledger_.Fold(
      [this](const std::string& island_id) {
        return membership_.members().contains(island_id);
      },
      open);
}

void Coordinator::EndRefusedMembers(const ContributionKey& removed,
                                    absl::Time now, Effects& effects) {
  const Round& round = rounds_[removed.fragment];
  const absl::StatusOr<Member*> next = membership_.FindLive(removed.island_id);
  if (next.ok()) {
    ContributionKey own = removed;
    own.incarnation = (*next)->incarnation;
    if (round.HasOrStandsFor(own.island_id, own.incarnation) &&
        !round.contributions().contains(own)) {
      EndMember(
          **next, v1::IslandStatus::EVICTED,
          "the contribution that stood for it was removed from its round; "
          "it may offer its own",
          now, effects);
    }
  }
  // With a quorum, the round closes without these members.
  if (round.contributions().size() >= options_.config.membership().quorum()) {
    return;
  }
  // The list changes as members end.
  const std::vector<Member*> live = membership_.Live();
  for (Member* member : live) {
    if (!round.HasTurnedAway(member->island_id, member->incarnation)) continue;
    EndMember(*member, v1::IslandStatus::EVICTED,
              "the round that it was too late for is open again; it may offer "
              "its contribution again",
              now, effects);
  }
}

void Coordinator::Settle(const v1::ContributionHeader& header,
                         Effects& effects) {
  const IncarnationKey key{header.identity().island_id(),
                           header.identity().incarnation()};
  effects.discarded.push_back(KeyOf(header));
  if (!quarantine_.Merged(header, effects)) claims_.Merged(header);
  ledger_.Settle(key, header.fragment(),
                 header.partial() ? TokenLedger::Fate::kPartial
                                  : TokenLedger::Fate::kMerged,
                 header.tokens(), header.restored_tokens());
  effects.accounts.push_back(ledger_.Record(key));
  Member* const member = membership_.FindNewest(header.identity());
  if (member == nullptr) return;
  ++member->contributions_merged;
  member->tokens_merged += header.tokens();
}

}  // namespace causeway
