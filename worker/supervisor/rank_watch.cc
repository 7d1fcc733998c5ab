// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/rank_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

constexpr int kLongestTimes = 5;

// An order for a rank, and the collective operations in it.
constexpr std::array<std::pair<RankLane, RankLane>, 2> kOrders = {
    {{RankLane::kTraining, RankLane::kTrainingCollective},
     {RankLane::kReplica, RankLane::kReplicaCollective}}};

const RankView::Lane& LaneOf(const RankView& rank, RankLane lane) {
  return rank.lanes[static_cast<int>(lane)];
}

std::string Seconds(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(100)));
}

// Knows how long the sections of all ranks may take.
class Limits {
 public:
  Limits(absl::Span<const RankView> ranks, const WatchLimits& limits)
      : ranks_(ranks), limits_(limits) {
    for (const RankView& rank : ranks) {
      learned_ = learned_ && rank.rounds >= kFirstRounds;
    }
  }

  // Returns the longest time of any rank for what the lane of `rank` does.
  absl::Duration Longest(const RankView& rank, RankLane lane) const {
    const auto section = static_cast<int>(LaneOf(rank, lane).section);
    absl::Duration longest;
    for (const RankView& other : ranks_) {
      longest = std::max(longest, LaneOf(other, lane).longest[section]);
    }
    return longest;
  }

  bool Exceeds(const RankView& rank, RankLane lane) const {
    if (LaneOf(rank, lane).section == RankSection::kNone) return false;
    const absl::Duration longest = Longest(rank, lane);
    const bool known = learned_ && longest > absl::ZeroDuration();
    const absl::Duration limit =
        known ? std::clamp(kLongestTimes * longest, limits_.least, limits_.most)
              : limits_.most;
    return LaneOf(rank, lane).time > limit;
  }

 private:
  const absl::Span<const RankView> ranks_;
  const WatchLimits limits_;
  bool learned_ = true;
};

}  // namespace

std::optional<RankFault> FindStuckRank(absl::Span<const RankView> ranks,
                                       const WatchLimits& limits) {
  for (const RankView& rank : ranks) {
    if (rank.silence <= limits.least) continue;
    return RankFault{rank.rank, true,
                     absl::StrCat("rank ", rank.rank,
                                  " is stuck: its process has not run for ",
                                  Seconds(rank.silence))};
  }
  const Limits learned(ranks, limits);
  std::optional<RankFault> waiting;
  for (const auto& [order, collective] : kOrders) {
    for (const RankView& rank : ranks) {
      const bool waits = LaneOf(rank, collective).section != RankSection::kNone;
      const RankLane lane = waits ? collective : order;
      if (!learned.Exceeds(rank, lane)) continue;
      const absl::Duration longest = learned.Longest(rank, lane);
      const std::string took =
          absl::StrCat(RankSectionName(LaneOf(rank, lane).section), " for ",
                       Seconds(LaneOf(rank, lane).time),
                       " (the longest so far took ", Seconds(longest), ")");
      if (!waits) {
        return RankFault{
            rank.rank, true,
            absl::StrCat("rank ", rank.rank, " is stuck: it has been in ", took,
                         " and waits for no other rank")};
      }
      if (waiting.has_value()) continue;
      waiting = RankFault{
          rank.rank, false,
          absl::StrCat("rank ", rank.rank, " has waited in ", took,
                       ", and no rank of this host is to blame: it may be a "
                       "link, or a rank of another host")};
    }
  }
  return waiting;
}

std::optional<absl::Duration> RestartBudget::AfterFailureAt(uint64_t step) {
  if (step > furthest_step_) {
    furthest_step_ = step;
    without_progress_ = 0;
  } else if (++without_progress_ > kMost) {
    return std::nullopt;
  }
  // A cause that lasts, such as a full disk, may go away.
  return without_progress_ == 0 ? absl::ZeroDuration()
                                : absl::Seconds(1 << (without_progress_ - 1));
}

}  // namespace causeway
