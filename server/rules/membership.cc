// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/membership.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "server/rules/training_history.h"

namespace causeway {
namespace {

constexpr size_t kMostJoinedSince = 128;

// Returns the time between two, to a tenth of a second.
std::string Age(absl::Time then, absl::Time now) {
  return absl::StrCat(std::round(absl::ToDoubleSeconds(now - then) * 10) / 10,
                      " s");
}

absl::Status Diverged(const Member& member) {
  return absl::OutOfRangeError(absl::StrCat(
      "the replica of island \"", member.island_id, "\" (incarnation ",
      member.incarnation, ") has diverged: ", member.reason,
      "; start again from the run's parameters"));
}

// Refuses a process that continues from one that joined before the island's
// last divergence.
absl::Status CheckOrigin(const Member& last, const v1::JoinRequest& request) {
  const std::vector<uint64_t>& since = last.joined_since_divergence;
  const uint64_t saved_by = request.saved_by() != 0
                                ? request.saved_by()
                                : request.replaces_instance_id();
  if (since.empty() || saved_by == 0 ||
      absl::c_linear_search(since, request.instance_id()) ||
      absl::c_linear_search(since, saved_by)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(
      "the replica of island \"", last.island_id,
      "\" has diverged since the checkpoint was made that this process "
      "continues from; start again from the run's parameters"));
}

// Returns Member.joined_since_divergence for a process that joins after `last`.
std::vector<uint64_t> JoinedSince(const Member& last, uint64_t process) {
  if (last.state == v1::IslandStatus::DIVERGED) return {process};
  std::vector<uint64_t> since = last.joined_since_divergence;
  if (since.empty() || absl::c_linear_search(since, process)) return since;
  if (since.size() >= kMostJoinedSince) since.erase(since.begin());
  since.push_back(process);
  return since;
}

// Checks what every request to join must have.
absl::Status CheckJoin(const v1::JoinRequest& request,
                       const std::string& run_id) {
  if (!IsValidName(request.island_id())) {
    return absl::InvalidArgumentError(
        absl::StrCat("island name \"", request.island_id(),
                     "\" is not allowed; use 1 to 64 of [a-z0-9-]"));
  }
  if (request.instance_id() == 0) {
    return absl::InvalidArgumentError(
        "JoinRequest.instance_id is 0; it must be a random number that stays "
        "the same for the life of the island's process");
  }
  if (!request.expected_run_id().empty() &&
      request.expected_run_id() != run_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        "island \"", request.island_id(), "\" belongs to run ",
        request.expected_run_id(), ", but this coordinator holds run ", run_id,
        "; point it at its own coordinator, or restart it"));
  }
  return absl::OkStatus();
}

// Returns why the process of `request` cannot have the name of a live `member`,
// and records in `member` that it asked.
absl::Status NameTaken(const v1::JoinRequest& request, absl::Duration lease,
                       absl::Time now, Member& member) {
  if (member.rival != request.instance_id()) {
    member.rival = request.instance_id();
    member.rival_at = now;
  }
  const std::string joined = absl::StrCat(
      "island \"", member.island_id, "\" is already joined (incarnation ",
      member.incarnation, member.description.empty() ? "" : ", ",
      member.description, ", last heard from ", Age(member.last_heartbeat, now),
      " ago)");
  // Messages of a dead process may still arrive for a while.
  if (member.last_heartbeat > member.rival_at + lease / 2) {
    return absl::AlreadyExistsError(
        absl::StrCat(joined,
                     ", and that process is alive; choose another name for "
                     "this island, or stop that one"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      joined, "; if that process is dead, its lease ends in ",
      Age(now, member.last_heartbeat + lease), "; retry until then"));
}

// Returns how many times a member may join at once; every kJoinPause adds one.
double JoinsLeft(const Member& member, absl::Time now) {
  if (member.joins_at > now) return Membership::kMostJoins;
  return std::min(
      Membership::kMostJoins,
      member.joins_left +
          absl::FDivDuration(now - member.joins_at, Membership::kJoinPause));
}

}  // namespace

bool HasFailed(v1::IslandStatus::State state, absl::string_view reason) {
  return state == v1::IslandStatus::LEFT && absl::StartsWith(reason, kFailed);
}

bool IsMissed(v1::IslandStatus::State state, absl::string_view reason) {
  return (state == v1::IslandStatus::EVICTED ||
          state == v1::IslandStatus::DIVERGED || HasFailed(state, reason)) &&
         !absl::StartsWith(reason, kByOperator);
}

void Membership::Restore(Member member, absl::Time now) {
  if (member.state == v1::IslandStatus::LIVE) member.last_heartbeat = now;
  member.has_reported = false;
  members_[member.island_id] = std::move(member);
  ListLive();
  ForgetOldest(nullptr);
}

absl::StatusOr<Membership::JoinResult> Membership::Join(
    const v1::JoinRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckJoin(request, options_.run_id));
  const auto known = members_.find(request.island_id());
  if (known != members_.end() &&
      known->second.state == v1::IslandStatus::LIVE) {
    Member& member = known->second;
    if (member.instance_id == request.instance_id()) {
      member.last_heartbeat = now;
      return JoinResult{&member, false};
    }
    return NameTaken(request, options_.lease, now, member);
  }
  // After a divergence, no process may continue from any checkpoint: the
  // diverged process may have used it, and its contribution may still be
  // admitted.
  if (known != members_.end() &&
      known->second.state == v1::IslandStatus::DIVERGED &&
      (known->second.instance_id == request.instance_id() ||
       request.replaces_instance_id() != 0)) {
    return Diverged(known->second);
  }
  if (known != members_.end()) {
    RETURN_IF_ERROR(CheckOrigin(known->second, request));
  }
  const double joins_left =
      known == members_.end() ? kMostJoins : JoinsLeft(known->second, now);
  if (joins_left < 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "island \"", request.island_id(), "\" joins too often; retry in ",
        absl::FormatDuration((1 - joins_left) * kJoinPause)));
  }
  if (live_count() >= options_.max_islands) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "run ", options_.run_id, " already has ", live_count(),
        live_count() == 1 ? " live island" : " live islands",
        ", as many as membership.max_islands allows; raise it, or wait until "
        "one leaves"));
  }
  // A process whose membership ended before it heard of a drain still has to
  // leave.
  const bool goes_on = known != members_.end() &&
                       known->second.state != v1::IslandStatus::LEFT &&
                       known->second.instance_id == request.instance_id();
  Member member{.island_id = request.island_id(),
                .incarnation = forgotten_incarnation_ + 1,
                .instance_id = request.instance_id(),
                .description = request.description(),
                .joined_at = now,
                .draining = goes_on && known->second.draining,
                .last_heartbeat = now,
                .place = PickPlace(request.island_id()),
                .joins_left = joins_left - 1,
                .joins_at = now};
  if (known != members_.end()) {
    member.incarnation = known->second.incarnation + 1;
    member.joined_since_divergence =
        JoinedSince(known->second, request.instance_id());
  }
  Member& stored = members_[member.island_id] = std::move(member);
  ListLive();
  return JoinResult{&stored, true};
}

Member* Membership::Replaced(const v1::JoinRequest& request) {
  const auto known = members_.find(request.island_id());
  if (known == members_.end() || request.replaces_instance_id() == 0) {
    return nullptr;
  }
  Member& member = known->second;
  return member.state == v1::IslandStatus::LIVE &&
                 member.instance_id == request.replaces_instance_id() &&
                 member.instance_id != request.instance_id()
             ? &member
             : nullptr;
}

absl::StatusOr<Member*> Membership::Check(const v1::IslandIdentity& identity) {
  if (identity.run_id() != options_.run_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the call is for run \"", identity.run_id(),
        "\", but this coordinator holds run \"", options_.run_id, "\""));
  }
  const auto found = members_.find(identity.island_id());
  if (found == members_.end()) {
    return absl::AbortedError(absl::StrCat("island \"", identity.island_id(),
                                           "\" is not a member; join first"));
  }
  Member& member = found->second;
  if (member.incarnation != identity.incarnation()) {
    return absl::AbortedError(absl::StrCat(
        "incarnation ", identity.incarnation(), " of island \"",
        identity.island_id(), "\" is fenced off: the current one is ",
        member.incarnation, "; join again"));
  }
  if (member.state == v1::IslandStatus::DIVERGED) return Diverged(member);
  if (member.state != v1::IslandStatus::LIVE) {
    return absl::AbortedError(
        absl::StrCat("incarnation ", identity.incarnation(), " of island \"",
                     identity.island_id(), "\" is no longer a member (",
                     member.reason, "); join again"));
  }
  return &member;
}

Member* Membership::FindNewest(const v1::IslandIdentity& identity) {
  const auto found = members_.find(identity.island_id());
  return found != members_.end() &&
                 found->second.incarnation == identity.incarnation()
             ? &found->second
             : nullptr;
}

absl::StatusOr<Member*> Membership::FindLive(const std::string& island_id) {
  const auto found = members_.find(island_id);
  if (found == members_.end() ||
      found->second.state != v1::IslandStatus::LIVE) {
    return absl::NotFoundError(absl::StrCat(
        "run ", options_.run_id, " has no live island \"", island_id, "\""));
  }
  return &found->second;
}

Member* Membership::FindMissed(const std::string& island_id) {
  const auto found = members_.find(island_id);
  return found != members_.end() &&
                 IsMissed(found->second.state, found->second.reason)
             ? &found->second
             : nullptr;
}

void Membership::End(Member& member, v1::IslandStatus::State state,
                     absl::string_view reason, absl::Time now) {
  member.state = state;
  ListLive();
  member.reason = std::string(reason);
  member.ended_at = now;
  member.progress.clear_ranks();
  member.progress.clear_wait();
  ForgetOldest(&member);
}

void Membership::ForgetOldest(const Member* kept) {
  while (members_.size() > kMostDeparted + live_count()) {
    auto oldest = members_.end();
    // Keep diverged members longest: their processes must learn that they may
    // not continue.
    const auto rank = [](const Member& member) {
      return std::make_pair(member.state == v1::IslandStatus::DIVERGED ||
                                !member.joined_since_divergence.empty(),
                            member.ended_at);
    };
    for (auto it = members_.begin(); it != members_.end(); ++it) {
      if (it->second.state == v1::IslandStatus::LIVE || &it->second == kept) {
        continue;
      }
      if (oldest == members_.end() || rank(it->second) < rank(oldest->second)) {
        oldest = it;
      }
    }
    forgotten_incarnation_ =
        std::max(forgotten_incarnation_, oldest->second.incarnation);
    members_.erase(oldest);
  }
}

void Membership::ExtendLeases(absl::Duration deaf, absl::Time now) {
  for (Member* member : live_) {
    member->last_heartbeat = std::min(member->last_heartbeat + deaf, now);
    // An extended lease is no sign of life.
    member->rival_at = std::min(member->rival_at + deaf, now);
  }
}

std::vector<Member*> Membership::Expired(absl::Time now) {
  std::vector<Member*> expired;
  for (Member* member : live_) {
    if (now - member->last_heartbeat > options_.lease) {
      expired.push_back(member);
    }
  }
  return expired;
}

void Membership::ListLive() {
  live_.clear();
  for (auto& [name, member] : members_) {
    if (member.state == v1::IslandStatus::LIVE) live_.push_back(&member);
  }
}

uint32_t Membership::ready_count() const {
  return static_cast<uint32_t>(
      std::count_if(live_.begin(), live_.end(),
                    [](const Member* member) { return member->IsReady(); }));
}

double Membership::TokensPerSecond() const {
  double sum = 0;
  for (const Member* member : live_) {
    const double speed = member->progress.tokens_per_second();
    if (IsPossibleSpeed(speed)) sum += speed;
  }
  return sum;
}

// Gives an island that comes back its old shard, and a new island the shard
// that the fewest live islands read, so that shards are shared only if
// necessary; and of the shard's places the first free one, unless the old one
// is free.
uint32_t Membership::PickPlace(const std::string& island_id) const {
  std::set<uint32_t> taken;
  std::vector<uint32_t> readers(options_.shards, 0);
  for (const Member* member : live_) {
    taken.insert(member->place);
    ++readers[member->place % options_.shards];
  }
  uint32_t place = 0;
  const auto known = members_.find(island_id);
  if (known != members_.end()) {
    if (taken.count(known->second.place) == 0) return known->second.place;
    place = known->second.place % options_.shards;
  } else {
    place = static_cast<uint32_t>(
        std::min_element(readers.begin(), readers.end()) - readers.begin());
  }
  while (taken.count(place) > 0) place += options_.shards;
  return place;
}

}  // namespace causeway
