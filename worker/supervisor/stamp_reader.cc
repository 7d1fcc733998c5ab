// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/stamp_reader.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "common/transport/field_limits.h"

namespace causeway {
namespace {

// A reader that was stopped itself must not take that for the ranks' silence.
constexpr absl::Duration kLongestTime = absl::Milliseconds(200);

enum class ChildState { kGone, kRuns, kStopped };

// Leaves the news of its state for others to wait for.
ChildState StateOf(pid_t child) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(child), &info,
             WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0) {
    return ChildState::kGone;
  }
  if (info.si_pid == 0) return ChildState::kRuns;
  return info.si_code == CLD_STOPPED ? ChildState::kStopped : ChildState::kGone;
}

RankView::Lane ViewOf(const RankStamps::Lane& stamps, uint64_t beat) {
  RankView::Lane lane;
  const uint64_t now = stamps.now;
  lane.section = static_cast<RankSection>(now & 0xff);
  if (now != 0) {
    lane.time = absl::Microseconds(static_cast<int64_t>(beat) -
                                   static_cast<int64_t>(now >> 8));
  }
  for (int section = 0; section < kRankSections; ++section) {
    lane.longest[section] =
        absl::Microseconds(static_cast<int64_t>(stamps.longest[section]));
  }
  return lane;
}

}  // namespace

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
    Silence& silence = silences_[rank];
    const uint64_t beat = stamps.beat;
    if (silence.process != process || silence.beat != beat) {
      silence = {.process = process, .beat = beat};
    } else {
      silence.time += since_last;
    }
    RankView& view = views.emplace_back();
    view.rank = rank;
    view.process = process;
    view.is_stopped = state == ChildState::kStopped;
    view.silence = silence.time;
    view.rounds = stamps.rounds;
    for (int lane = 0; lane < kRankLanes; ++lane) {
      view.lanes[lane] = ViewOf(stamps.lanes[lane], beat);
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
