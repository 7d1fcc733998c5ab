// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/expectations.h"

#include <algorithm>

#include "server/rules/grace_window.h"

namespace causeway {

void Expectations::Add(Member& member, const std::vector<uint64_t>& versions,
                       bool run_has_started) {
  const bool window_under_way =
      run_has_started && membership_->ready_count() > 0;
  for (size_t fragment = 0; fragment < versions.size(); ++fragment) {
    member.first_contribution_version[fragment] =
        versions[fragment] + (window_under_way ? 1 : 0);
  }
}

std::vector<std::string> Expectations::Awaited(const Round& round) {
  std::vector<std::string> awaited;
  if (round.base_version() >= schedule_->FinalVersion(round.fragment())) {
    return awaited;
  }
  for (const Member* member : membership_->Live()) {
    if (IsMissing(*member, round)) {
      awaited.push_back(member->island_id);
    }
  }
  return awaited;
}

size_t Expectations::Reachable(const Round& round) {
  size_t reachable = round.contributions().size();
  // Contributions of several incarnations of an island count once.
  for (const std::string& island : Awaited(round)) {
    reachable += round.HasIsland(island) ? 0 : 1;
  }
  return reachable;
}

std::set<std::string> Expectations::Silent(const Round& round) {
  std::set<std::string> silent;
  for (const Member* member : membership_->Live()) {
    if (IsMissing(*member, round) && !round.HasHeard(member->island_id)) {
      silent.insert(member->island_id);
    }
  }
  return silent;
}

bool Expectations::IsHeldUp(Round& round, absl::Time now) {
  const uint64_t send_step =
      schedule_->StepOfVersion(round.fragment(), round.base_version() + 1);
  const size_t contributed = round.contributions().size();
  size_t able = contributed;
  for (const Member* member : membership_->Live()) {
    able += IsSpare(*member, round) &&
            member->progress.run_step() >= send_step &&
            !round.HasIsland(member->island_id);
  }
  const uint32_t quorum = config_->quorum();
  return now >=
         round.NoteCouldClose(contributed < quorum && able >= quorum, now) +
             absl::Seconds(config_->grace_seconds());
}

bool Expectations::Refresh(Round& round, absl::Time now) {
  const bool held_up = IsHeldUp(round, now);
  std::vector<Member*> others;
  for (Member* member : membership_->Live()) {
    if (IsSpare(*member, round)) others.push_back(member);
  }
  if (others.empty() || (Reachable(round) >= config_->quorum() && !held_up)) {
    return false;
  }
  for (Member* member : others) {
    member->first_contribution_version[round.fragment()] = round.base_version();
  }
  return true;
}

bool Expectations::MayClose(Round& round, absl::Duration outer_step,
                            absl::Time now) {
  SetGrace(round, outer_step);
  // Look at all members for awaited islands only if the round could close.
  return round.MayClose(/*awaited=*/0, now) &&
         round.MayClose(Awaited(round).size(), now);
}

void Expectations::SetGrace(Round& round, absl::Duration outer_step) {
  if (round.quorum_at() == absl::InfiniteFuture()) return;
  double slowest = 0;
  for (const Member* member : membership_->Live()) {
    slowest = std::max(slowest, member->progress.step_seconds());
  }
  round.set_grace(GraceWindow({.most = absl::Seconds(config_->grace_seconds()),
                               .overlap_share = config_->grace_overlap_share(),
                               .overlap_steps = schedule_->overlap_steps()},
                              {.first_offer = round.overlap_since(),
                               .upload = round.first_upload(),
                               .outer_step = outer_step,
                               .quorum_at = round.quorum_at(),
                               .inner_step = absl::Seconds(slowest)}));
}

v1::Participation Expectations::ParticipationIn(const Round& round) {
  std::set<std::string> merged;
  for (const auto& [key, header] : round.contributions()) {
    merged.insert(key.island_id);
  }
  // An admitted contribution was not offered to this round.
  std::set<std::string> contributing = round.offering();
  contributing.insert(merged.begin(), merged.end());
  std::set<std::string> live = contributing;
  for (const Member* member : membership_->Live()) {
    live.insert(member->island_id);
  }
  v1::Participation participation;
  participation.set_live(live.size());
  participation.set_contributing(contributing.size());
  participation.set_merged(merged.size());
  return participation;
}

}  // namespace causeway
