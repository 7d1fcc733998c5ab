// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides, from the stamps of a host's ranks (worker/collective/rank_stamps.h),
// whether one is stuck, and whether to start a failed island again. Takes no
// action itself.
//
// A rank is stuck if its process does not run, or if it takes far longer for an
// activity than any rank before. Ranks that wait for it also take long, but
// these are in a collective operation, and the stuck rank is not.
#ifndef WORKER_SUPERVISOR_RANK_WATCH_H_
#define WORKER_SUPERVISOR_RANK_WATCH_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {

// A rank's activity, according to its stamps.
struct RankView {
  struct Lane {
    RankSection section = RankSection::kNone;
    // The time that the lane has been in the section.
    absl::Duration time;
    // The longest time so far, by section.
    std::array<absl::Duration, kRankSections> longest = {};
  };

  int rank = 0;
  pid_t process = 0;
  // Is true if a signal has stopped its process.
  bool is_stopped = false;
  // The time since its process last showed life.
  absl::Duration silence;
  uint64_t rounds = 0;
  std::array<Lane, kRankLanes> lanes;
};

// The time after which an activity takes too long: 5 times the longest time so
// far, but within `least` and `most`. In the first rounds, and for an activity
// new to all ranks, it is `most`.
struct WatchLimits {
  absl::Duration least = absl::Seconds(10);
  absl::Duration most = absl::Minutes(10);
  // A process may be silent this long for no known reason.
  absl::Duration silence = absl::Seconds(10);
  // A process may be stopped this long. A restart takes about as long, so that
  // waiting never costs more.
  absl::Duration stopped = absl::Milliseconds(500);
};

struct RankFault {
  int rank = 0;
  pid_t process = 0;
  // Is true if `rank` is certainly at fault; otherwise it may only be waiting.
  bool is_sure = false;
  // A sentence for people.
  std::string text;
};

// Returns the stuck rank, if any; sure faults first.
std::optional<RankFault> FindStuckRank(absl::Span<const RankView> ranks,
                                       const WatchLimits& limits);

// Counts an island's restarts without progress.
class RestartBudget {
 public:
  // An island ends with the failure of the last of these restarts, which is its
  // fourth without progress.
  static constexpr int kMost = 3;

  // The pauses before such restarts begin with `first_pause`, and double up to
  // a minute.
  explicit RestartBudget(absl::Duration first_pause = absl::Seconds(1))
      : first_pause_(first_pause) {}

  // Call after a failure with the last step that the island has completed since
  // its start. Returns the pause before the next start, which is 0 after
  // progress, or, with `is_limited`, nothing after kMost restarts without
  // progress.
  std::optional<absl::Duration> AfterFailureAt(uint64_t step, bool is_limited);

 private:
  absl::Duration first_pause_;
  uint64_t furthest_step_ = 0;
  int without_progress_ = 0;
  // Counts those of `without_progress_` with `is_limited`.
  int limited_ = 0;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_RANK_WATCH_H_
