// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that serves operators.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/rules/coordinator.h"

namespace causeway {
namespace {

std::string Because(absl::string_view reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

// Returns the live member that an operator wants to end. ALREADY_EXISTS if it
// has ended, for instance by the same call.
absl::StatusOr<Member*> FindToEnd(Membership& membership,
                                  const std::string& island_id) {
  const auto found = membership.members().find(island_id);
  if (found != membership.members().end() &&
      found->second.state != v1::IslandStatus::LIVE) {
    return absl::AlreadyExistsError(absl::StrCat("island ", island_id,
                                                 " is no longer in the run (",
                                                 found->second.reason, ")"));
  }
  return membership.FindLive(island_id);
}

}  // namespace

absl::Status Coordinator::Pause(absl::string_view reason, absl::Time now,
                                Effects& effects) {
  if (IsFinished()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "run ", options_.run_id, " is finished; there is nothing to pause"));
  }
  if (flags_.paused && (reason.empty() || reason == flags_.pause_reason)) {
    return absl::OkStatus();
  }
  if (!flags_.paused) paused_at_ = now;
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
  effects.events.push_back({"run_resumed", "", "the run continues"});
  effects.view_changed = true;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    rounds_[fragment].Shift(now - paused_at_, now);
    MaybeClose(fragment, now, effects);
  }
  return absl::OkStatus();
}

absl::Status Coordinator::Drain(const std::string& island_id,
                                absl::string_view reason, Effects& effects) {
  ASSIGN_OR_RETURN(Member* const member, FindToEnd(membership_, island_id));
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
  if (member == nullptr) {
    ASSIGN_OR_RETURN(member, FindToEnd(membership_, island_id));
  }
  EndMember(*member,
            member->state == v1::IslandStatus::DIVERGED
                ? v1::IslandStatus::DIVERGED
                : v1::IslandStatus::EVICTED,
            absl::StrCat(kByOperator, Because(reason)), now, effects);
  return absl::OkStatus();
}

absl::StatusOr<ContributionKey> Coordinator::Admit(uint64_t id, absl::Time now,
                                                   Effects& effects) {
  ASSIGN_OR_RETURN(const bool is_admitted, quarantine_.IsAdmitted(id));
  v1::ContributionHeader header = quarantine_.entries().at(id).header;
  Round& round = rounds_[header.fragment()];
  header.set_base_version(round.base_version());
  if (is_admitted) return KeyOf(header);
  RETURN_IF_ERROR(CheckHeader(header));
  if (round.base_version() >= schedule().FinalVersion(header.fragment())) {
    return absl::FailedPreconditionError(
        absl::StrCat("fragment ", header.fragment(), " has its last version, ",
                     round.base_version(), ", and takes no contributions"));
  }
  if (round.merging()) {
    return absl::UnavailableError(
        absl::StrCat("fragment ", header.fragment(),
                     " is being merged right now; repeat the call"));
  }
  quarantine_.Admit(id, round, now, effects);
  MaybeClose(header.fragment(), now, effects);
  return KeyOf(header);
}

absl::Status Coordinator::Drop(uint64_t id, Effects& effects) {
  return quarantine_.Drop(id, effects);
}

void Coordinator::HoldBack(const v1::ContributionHeader& header, double norm,
                           absl::string_view reason, bool admissible,
                           absl::Time now, Effects& effects) {
  quarantine_.Hold(header, norm, reason, admissible, now, effects);
  const auto member = membership_.Check(header.identity());
  if (!member.ok()) return;
  EndMember(**member, v1::IslandStatus::DIVERGED,
            absl::StrCat("its contribution to fragment ", header.fragment(),
                         " was put aside: ", reason),
            now, effects);
}

}  // namespace causeway
