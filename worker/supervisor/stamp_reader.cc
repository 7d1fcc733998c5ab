// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/stamp_reader.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "common/transport/field_limits.h"

namespace causeway {
namespace {

// A reader that was itself stopped, perhaps with the ranks, must not count that
// time as their silence or activity.
constexpr absl::Duration kLongestTime = absl::Milliseconds(200);

enum class ChildState { kGone, kRuns, kStopped };

// Returns the child's state, and leaves it to be reaped by others.
ChildState StateOf(pid_t child) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(child), &info,
             WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0) {
    return ChildState::kGone;
  }
  if (info.si_pid == 0) return ChildState::kRuns;
  return info.si_code == CLD_STOPPED ? ChildState::kStopped : ChildState::kGone;
}

}  // namespace

RankView::Lane StampReader::ViewOf(const RankStamps::Lane& stamps,
                                   uint64_t beat, absl::Duration since_last,
                                   Seen::Lane& seen) {
  const uint64_t count = stamps.count;
  if (seen.count != count) {
    seen = {.count = count};
  } else {
    seen.time += since_last;
  }
  RankView::Lane lane;
  const uint64_t now = stamps.now;
  lane.section = static_cast<RankSection>(now & 0xff);
  if (now != 0) {
    // The first value is the time by the rank's clock, which runs on while all
    // processes are stopped.
    lane.time = std::min(absl::Microseconds(static_cast<int64_t>(beat) -
                                            static_cast<int64_t>(now >> 8)),
                         seen.time);
  }
  for (int section = 0; section < kRankSections; ++section) {
    lane.longest[section] =
        absl::Microseconds(static_cast<int64_t>(stamps.longest[section]));
  }
  return lane;
}

std::vector<RankView> StampReader::Read(absl::Time now) {
  const absl::Duration since_last = std::clamp(
      now - std::exchange(read_at_, now), absl::ZeroDuration(), kLongestTime);
  std::vector<RankView> views;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const RankStamps& stamps = page_->rank(rank);
    const auto process = static_cast<pid_t>(stamps.process);
    if (process == 0) continue;
    const ChildState state = StateOf(process);
    if (state == ChildState::kGone) continue;
    Seen& seen = seen_[rank];
    const uint64_t beat = stamps.beat;
    if (seen.process != process) seen = {.process = process};
    if (std::exchange(seen.beat, beat) == beat) {
      seen.silence += since_last;
    } else {
      seen.silence = absl::ZeroDuration();
    }
    RankView& view = views.emplace_back();
    view.rank = rank;
    view.process = process;
    view.is_stopped = state == ChildState::kStopped;
    view.silence = seen.silence;
    view.rounds = stamps.rounds;
    for (int lane = 0; lane < kRankLanes; ++lane) {
      view.lanes[lane] =
          ViewOf(stamps.lanes[lane], beat, since_last, seen.lanes[lane]);
    }
  }
  return views;
}

uint64_t StampReader::LastStep() {
  uint64_t step = 0;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    step = std::max<uint64_t>(step, page_->rank(rank).step);
  }
  return step;
}

}  // namespace causeway
