// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/run_health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/proto_time.h"

namespace causeway {
namespace {

// The number of rounds from which the pace is computed.
constexpr size_t kPaces = 15;

// See the header.
constexpr int kUsualRounds = 3;
constexpr absl::Duration kSlack = absl::Seconds(30);
constexpr absl::Duration kUnknownRound = absl::Minutes(20);

std::string InSeconds(absl::Duration duration) {
  return absl::FormatDuration(
      std::max(absl::Trunc(duration, absl::Seconds(1)), absl::Seconds(1)));
}

v1::Attention Problem(v1::Severity severity, std::string text,
                      std::string command, absl::Time since) {
  v1::Attention problem;
  problem.set_severity(severity);
  problem.set_text(std::move(text));
  problem.set_command(std::move(command));
  *problem.mutable_since() = ToTimestamp(since);
  return problem;
}

// A follower in sync that is not at work and lacks a change for this long was
// not taken out in time.
constexpr absl::Duration kLongestLack = absl::Seconds(10);

// Updates `since`, the time since which something holds; infinite if it does
// not.
void NoteWhether(bool holds, absl::Time now, absl::Time& since) {
  since = holds ? std::min(since, now) : absl::InfiniteFuture();
}

// Returns a reason, perhaps from a peer, in brackets; nothing if it is long.
std::string InBrackets(absl::string_view reason) {
  constexpr size_t kMostReason = 300;
  return reason.size() > kMostReason ? "" : absl::StrCat(" (", reason, ")");
}

v1::Attention MissedIsland(const Member& member) {
  const bool diverged = member.state == v1::IslandStatus::DIVERGED;
  v1::Attention problem = Problem(
      v1::WARNING,
      absl::StrCat("island ", member.island_id,
                   diverged ? " has diverged and not rejoined" : " is gone",
                   InBrackets(member.reason),
                   ": restart it, or evict it if it should stay away"),
      absl::StrCat("causeway evict ", member.island_id), member.ended_at);
  problem.set_island_id(member.island_id);
  return problem;
}

v1::Attention OtherData(const std::string& island, absl::Time since) {
  v1::Attention problem =
      Problem(v1::WARNING,
              absl::StrCat(
                  "island ", island,
                  " reads other data than the run's: restart it with the run's "
                  "files, or accept its data if they are the right ones"),
              absl::StrCat("causeway data accept ", island), since);
  problem.set_island_id(island);
  return problem;
}

// Returns what is wrong with a follower, if anything.
std::optional<v1::Attention> FollowerProblem(const v1::FollowerStatus& follower,
                                             absl::Time now) {
  const std::string lack =
      absl::StrCat(" lacks ", follower.changes_behind(),
                   follower.changes_behind() == 1 ? " change" : " changes");
  const absl::Duration lacks = absl::Seconds(follower.seconds_behind());
  if (follower.state() == v1::FollowerStatus::BEHIND) {
    return Problem(v1::WARNING,
                   absl::StrCat("follower ", follower.name(), lack), "",
                   now - lacks);
  }
  if (follower.state() == v1::FollowerStatus::IN_SYNC && !follower.at_work() &&
      lacks > kLongestLack) {
    // Only etcd can take it out.
    return Problem(
        v1::CRITICAL,
        absl::StrCat(
            "versions wait for follower ", follower.name(), ", which", lack,
            ": restart it, or bring etcd back so that it can be taken out"),
        "", now - lacks);
  }
  return std::nullopt;
}

}  // namespace

uint32_t FollowersInSync(const v1::RunStatus& status) {
  return static_cast<uint32_t>(
      std::count_if(status.followers().begin(), status.followers().end(),
                    [](const v1::FollowerStatus& follower) {
                      return follower.state() == v1::FollowerStatus::IN_SYNC;
                    }));
}

void AddProblems(std::vector<v1::Attention> problems, v1::RunStatus& status) {
  google::protobuf::RepeatedPtrField<v1::Attention>& all =
      *status.mutable_attention();
  for (v1::Attention& problem : problems) *all.Add() = std::move(problem);
  std::stable_sort(all.begin(), all.end(),
                   [](const v1::Attention& a, const v1::Attention& b) {
                     return a.severity() > b.severity();
                   });
  const int most = RunHealth::kMostProblems;
  if (all.size() > most) all.DeleteSubrange(most, all.size() - most);
}

void RunHealth::Observe(const Moment& moment, absl::Time now) {
  const bool first = moment_.state == v1::RUN_STATE_UNSPECIFIED;
  if (moment.state != moment_.state) {
    // A process may begin with a paused run.
    state_since_ = first && moment.state == v1::PAUSED
                       ? std::min(options_.last_pause, now)
                       : now;
  }
  const bool enough =
      moment.ready >= moment.needed || moment.state == v1::FINISHED;
  if (enough) {
    missing_since_ = absl::InfiniteFuture();
  } else {
    // If a process begins with too few islands, count from the earlier
    // process's time.
    missing_since_ = std::min(missing_since_,
                              first ? std::min(options_.last_end, now) : now);
  }
  NoteWhether(moment.lacks_followers, now, lacks_followers_since_);
  NoteWhether(!moment.etcd_problem.empty(), now, etcd_problem_since_);
  std::map<std::string, absl::Time> other_data;
  for (const std::string& island : moment.other_data) {
    const auto known = other_data_since_.find(island);
    other_data[island] = known != other_data_since_.end() ? known->second : now;
  }
  other_data_since_ = std::move(other_data);
  std::vector<Head> merged;
  for (size_t i = 0; i < moment.heads.size(); ++i) {
    Head head = moment.heads[i];
    // The clock of an earlier process may have been ahead of this one's.
    head.committed_at = std::min(head.committed_at, now);
    if (moment_.heads.empty() || head.step > moment_.heads[i].step) {
      merged.push_back(head);
    }
  }
  std::sort(merged.begin(), merged.end(), [](const Head& a, const Head& b) {
    return a.committed_at < b.committed_at;
  });
  for (const Head& head : merged) Merged(head);
  // An earlier process began the rounds that follow these.
  if (first) newest_.committed_at = absl::InfinitePast();
  if (!enough || moment.state != v1::RUNNING) {
    able_since_ = absl::InfiniteFuture();
  } else {
    able_since_ = std::min(able_since_, now);
  }
  moment_ = moment;
}

void RunHealth::Merged(const Head& head) {
  if (head.step == 0) return;
  merged_at_ = std::max(merged_at_, head.committed_at);
  if (head.step <= newest_.step) return;
  if (newest_.committed_at >= able_since_) {
    const absl::Duration pace = (head.committed_at - newest_.committed_at) /
                                static_cast<double>(head.step - newest_.step);
    // The clock may have been set back.
    if (pace > absl::ZeroDuration()) paces_.push_back(pace);
    if (paces_.size() > kPaces) paces_.pop_front();
  }
  newest_ = head;
}

std::optional<absl::Duration> RunHealth::Pace() const {
  if (paces_.empty()) return std::nullopt;
  std::vector<absl::Duration> sorted(paces_.begin(), paces_.end());
  const auto middle =
      sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

absl::Time RunHealth::IdleSince() const {
  return std::max(able_since_, merged_at_);
}

absl::Duration RunHealth::LongestIdle(absl::Duration claimed_round) const {
  const std::optional<absl::Duration> pace = Pace();
  absl::Duration round = kUnknownRound;
  if (pace.has_value()) {
    round = *pace * static_cast<double>(options_.round_steps);
  } else if (claimed_round > absl::ZeroDuration()) {
    round = claimed_round;
  }
  return kUsualRounds * round + options_.grace + kSlack;
}

v1::Attention RunHealth::Missing(const Details& details) const {
  const uint32_t missing = moment_.needed - moment_.ready;
  std::string text =
      absl::StrCat("waiting for ", missing, " of ", moment_.needed,
                   moment_.needed == 1 ? " island" : " islands",
                   moment_.begun ? "" : " to begin");
  const Member* last = nullptr;
  std::vector<std::string> joined;
  for (const auto& [name, member] : details.members) {
    if (member.state == v1::IslandStatus::LIVE) {
      if (!member.IsReady()) joined.push_back(name);
    } else if (last == nullptr || member.ended_at > last->ended_at) {
      last = &member;
    }
  }
  if (joined.size() == 1) {
    absl::StrAppend(&text, ": ", joined[0], " has joined, but is not ready");
  } else if (joined.size() > 1) {
    absl::StrAppend(&text, ": ", joined.size(),
                    " islands have joined, but are not ready");
  }
  if (last != nullptr && joined.size() < missing) {
    absl::StrAppend(&text, "; the last to leave was ", last->island_id,
                    InBrackets(last->reason));
  }
  return Problem(moment_.begun ? v1::CRITICAL : v1::WARNING, std::move(text),
                 "causeway islands --all", missing_since_);
}

std::vector<v1::Attention> RunHealth::RunProblems(
    const Details& details, absl::Time now, const v1::RunStatus& status) const {
  std::vector<v1::Attention> problems;
  bool waits_for_follower = false;
  for (const v1::FollowerStatus& follower : status.followers()) {
    std::optional<v1::Attention> problem = FollowerProblem(follower, now);
    if (!problem.has_value()) continue;
    waits_for_follower |= problem->severity() == v1::CRITICAL;
    problems.push_back(*std::move(problem));
  }
  if (moment_.state == v1::SUSPENDED) {
    problems.push_back(
        Problem(v1::CRITICAL,
                absl::StrCat("nothing can be committed: ", status.message(),
                             "; see docs/repair.md"),
                // An event may not be in the log, either.
                /*command=*/"", state_since_));
  }
  if (missing_since_ < absl::InfiniteFuture()) {
    problems.push_back(Missing(details));
  }
  // A follower that versions wait for explains it.
  if (!waits_for_follower &&
      now - IdleSince() > LongestIdle(details.claimed_round)) {
    const std::optional<absl::Duration> pace = Pace();
    problems.push_back(Problem(
        v1::CRITICAL,
        absl::StrCat(
            "no round is merged",
            pace.has_value()
                ? absl::StrCat("; usually one takes ",
                               InSeconds(*pace * static_cast<double>(
                                                     options_.round_steps)))
                : ""),
        "causeway fragments", IdleSince()));
  }
  if (moment_.state == v1::PAUSED) {
    problems.push_back(
        Problem(v1::NOTICE, absl::StrCat("the run is held: ", status.message()),
                "causeway resume", state_since_));
    if (!moment_.storage_problem.empty()) {
      problems.push_back(
          Problem(v1::WARNING,
                  absl::StrCat("nothing could be committed; the coordinator "
                               "retries once the run is resumed: ",
                               moment_.storage_problem),
                  "causeway resume", state_since_));
    }
  }
  if (status.quarantined() > 0) {
    problems.push_back(
        Problem(v1::WARNING,
                absl::StrCat(status.quarantined(),
                             status.quarantined() == 1 ? " contribution waits"
                                                       : " contributions wait",
                             " in quarantine for a decision"),
                "causeway quarantine list", details.quarantined_since));
  }
  const uint32_t in_sync = FollowersInSync(status);
  const uint32_t wanted = status.config().storage().sync_replicas();
  if (in_sync < wanted) {
    problems.push_back(Problem(
        v1::WARNING,
        absl::StrCat("versions wait for ", in_sync, " of ", wanted,
                     " followers (storage.sync_replicas): if this machine is "
                     "lost, the newest versions may be lost too"),
        "", std::min(lacks_followers_since_, now)));
  }
  if (!moment_.etcd_problem.empty()) {
    problems.push_back(
        Problem(v1::WARNING, moment_.etcd_problem, "", etcd_problem_since_));
  }
  return problems;
}

void RunHealth::Describe(const Details& details, absl::Time now,
                         v1::RunStatus& status) const {
  status.set_islands_needed(moment_.needed);
  if (merged_at_ > absl::InfinitePast()) {
    *status.mutable_last_round_at() = ToTimestamp(merged_at_);
  }
  if (moment_.state == v1::FINISHED) return;
  if (missing_since_ < absl::InfiniteFuture()) {
    *status.mutable_missing_since() = ToTimestamp(missing_since_);
  }
  const absl::Duration idle = now - IdleSince();
  const std::optional<absl::Duration> pace = Pace();
  if (pace.has_value() && able_since_ < absl::InfiniteFuture() &&
      idle <= LongestIdle(details.claimed_round)) {
    const uint64_t steps =
        options_.total_steps - std::min(newest_.step, options_.total_steps);
    const absl::Duration since_newest =
        now - std::max(able_since_, newest_.committed_at);
    status.set_seconds_left(
        std::max(0.0, absl::ToDoubleSeconds(*pace * static_cast<double>(steps) -
                                            since_newest)));
  }
  std::vector<v1::Attention> problems = RunProblems(details, now, status);
  for (const auto& [name, member] : details.members) {
    if (IsMissed(member.state, member.reason)) {
      problems.push_back(MissedIsland(member));
    }
  }
  for (const auto& [island, since] : other_data_since_) {
    problems.push_back(OtherData(island, since));
  }
  // A process learns the configuration when it first joins. One that has been
  // evicted and joined again since the change is not noticed.
  std::vector<absl::string_view> earlier;
  for (const auto& [name, member] : details.members) {
    if (member.state == v1::IslandStatus::LIVE &&
        member.joined_at < options_.config_changed) {
      earlier.push_back(name);
    }
  }
  if (!earlier.empty()) {
    problems.push_back(
        Problem(v1::WARNING,
                absl::StrCat(absl::StrJoin(earlier, ", "),
                             earlier.size() == 1 ? " trains" : " train",
                             " by an earlier configuration: restart ",
                             earlier.size() == 1 ? "it" : "them"),
                "", options_.config_changed));
  }
  AddProblems(std::move(problems), status);
}

}  // namespace causeway
