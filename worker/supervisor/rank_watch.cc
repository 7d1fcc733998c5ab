// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/rank_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

constexpr int kLongestTimes = 5;

// The lane of a rank's order, and of the collective operations in it.
constexpr std::array<std::pair<RankLane, RankLane>, 2> kOrders = {
    {{RankLane::kTraining, RankLane::kTrainingCollective},
     {RankLane::kReplica, RankLane::kReplicaCollective}}};

const RankView::Lane& LaneOf(const RankView& rank, RankLane lane) {
  return rank.lanes[static_cast<int>(lane)];
}

std::string Seconds(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(100)));
}

// The limits for the sections of all ranks.
class Limits {
 public:
  Limits(absl::Span<const RankView> ranks, const WatchLimits& limits)
      : ranks_(ranks), limits_(limits) {
    for (const RankView& rank : ranks) {
      learned_ = learned_ && rank.rounds >= kFirstRounds;
    }
  }

  // Returns the longest time of any rank for the current section of `rank`.
  absl::Duration Longest(const RankView& rank, RankLane lane) const {
    const auto section = static_cast<int>(LaneOf(rank, lane).section);
    absl::Duration longest;
    for (const RankView& other : ranks_) {
      longest = std::max(longest, LaneOf(other, lane).longest[section]);
    }
    return longest;
  }

  // Returns the time of `rank` in its current section as a share of the limit.
  double Share(const RankView& rank, RankLane lane) const {
    if (LaneOf(rank, lane).section == RankSection::kNone) return 0;
    const absl::Duration longest = Longest(rank, lane);
    const bool known = learned_ && longest > absl::ZeroDuration();
    const absl::Duration limit =
        known ? std::clamp(kLongestTimes * longest, limits_.least, limits_.most)
              : limits_.most;
    return absl::FDivDuration(LaneOf(rank, lane).time, limit);
  }

 private:
  const absl::Span<const RankView> ranks_;
  const WatchLimits limits_;
  bool learned_ = true;
};

std::optional<RankFault> FindSilentRank(absl::Span<const RankView> ranks,
                                        const WatchLimits& limits) {
  const RankView* first = nullptr;
  size_t silent = 0;
  for (const RankView& rank : ranks) {
    const absl::Duration limit =
        rank.is_stopped ? limits.stopped : limits.silence;
    // Ranks beat at different times, so ranks that stop together exceed their
    // limit one after the other.
    if (rank.is_stopped || rank.silence > limit / 2) ++silent;
    if (first == nullptr && rank.silence > limit) first = &rank;
  }
  if (first == nullptr) return std::nullopt;
  const bool all = silent > 1 && silent == ranks.size();
  return RankFault{
      first->rank, first->process, true,
      absl::StrCat(all ? "all ranks of a host are stuck, from rank " : "rank ",
                   first->rank,
                   all ? " on: no process has run for "
                       : " is stuck: its process has not run for ",
                   Seconds(first->silence),
                   first->is_stopped ? "; a signal has stopped it" : "")};
}

}  // namespace

std::optional<RankFault> FindStuckRank(absl::Span<const RankView> ranks,
                                       const WatchLimits& limits) {
  if (auto silent = FindSilentRank(ranks, limits)) return silent;
  const Limits learned(ranks, limits);
  std::optional<RankFault> waits;
  for (const auto& [order, collective] : kOrders) {
    std::optional<RankFault> busy;
    int busy_ranks = 0;
    bool some_wait = false;
    for (const RankView& rank : ranks) {
      const bool is_waiting =
          LaneOf(rank, collective).section != RankSection::kNone;
      const RankLane lane = is_waiting ? collective : order;
      const double share = learned.Share(rank, lane);
      // Even ranks that began together do not exceed their limit together.
      if (!is_waiting && share > 0.5) ++busy_ranks;
      if (share <= 1) continue;
      some_wait = some_wait || is_waiting;
      std::optional<RankFault>& fault = is_waiting ? waits : busy;
      if (fault.has_value()) continue;
      fault =
          RankFault{rank.rank, rank.process, !is_waiting,
                    absl::StrCat("has been in ",
                                 RankSectionName(LaneOf(rank, lane).section),
                                 " for ", Seconds(LaneOf(rank, lane).time),
                                 " (the longest so far took ",
                                 Seconds(learned.Longest(rank, lane)), ")")};
    }
    if (!busy.has_value()) continue;
    // Ranks of a foreign training loop wait for one another without a stamp.
    busy->is_sure = some_wait || busy_ranks == 1;
    if (busy->is_sure) {
      busy->text =
          absl::StrCat("rank ", busy->rank, " is stuck: it ", busy->text);
      return busy;
    }
    waits = busy;
  }
  if (waits.has_value()) {
    waits->text = absl::StrCat(
        "rank ", waits->rank, " ", waits->text,
        "; it may be waiting for another rank or host, or for a link");
  }
  return waits;
}

std::optional<absl::Duration> RestartBudget::AfterFailureAt(uint64_t step,
                                                            bool is_limited) {
  if (step > furthest_step_) {
    furthest_step_ = step;
    without_progress_ = 0;
    limited_ = 0;
    return absl::ZeroDuration();
  }
  ++without_progress_;
  if (is_limited && ++limited_ > kMost) return std::nullopt;
  // Even a lasting cause, such as a full disk, may go away.
  return std::min(first_pause_ * std::exp2(without_progress_ - 1),
                  absl::Minutes(1));
}

}  // namespace causeway
