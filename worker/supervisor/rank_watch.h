// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides, from what the ranks of a host have stamped
// (worker/collective/rank_stamps.h), whether one is stuck, and whether an
// island that has failed is to be started again. Does nothing itself.
//
// A rank is stuck if its process does not run, or if it takes far longer for
// something than any rank has taken before. The ranks that wait for it take
// long, too; but they are in a collective operation, and it is not.
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

// What a rank does, as its stamps say.
struct RankView {
  struct Lane {
    RankSection section = RankSection::kNone;
    // How long the lane has been in the section.
    absl::Duration time;
    // By section: the longest time so far.
    std::array<absl::Duration, kRankSections> longest = {};
  };

  int rank = 0;
  pid_t process = 0;
  // Whether a signal has stopped its process.
  bool is_stopped = false;
  // For how long its process has shown no life.
  absl::Duration silence;
  uint64_t rounds = 0;
  std::array<Lane, kRankLanes> lanes;
};

// When something takes too long: 5 times the longest time so far, but within
// these bounds. In the first rounds, and for what no rank has done yet, it is
// `most`.
struct WatchLimits {
  absl::Duration least = absl::Seconds(10);
  absl::Duration most = absl::Minutes(10);
  // How long a process may be silent for no known reason.
  absl::Duration silence = absl::Seconds(10);
  // How long it may be stopped: about as long as a restart takes, so that
  // waiting costs no more than that.
  absl::Duration stopped = absl::Milliseconds(500);
};

struct RankFault {
  int rank = 0;
  pid_t process = 0;
  // Whether it is known which rank is at fault; otherwise `rank` is one that
  // waits.
  bool is_sure = false;
  // A sentence for people.
  std::string text;
};

// Returns the rank that is stuck, if one is; sure faults first.
std::optional<RankFault> FindStuckRank(absl::Span<const RankView> ranks,
                                       const WatchLimits& limits);

// Counts the times that an island starts again without getting any further.
class RestartBudget {
 public:
  static constexpr int kMost = 3;

  // The pauses between such starts begin with `first_pause`, and double.
  explicit RestartBudget(absl::Duration first_pause = absl::Seconds(1))
      : first_pause_(first_pause) {}

  // Call after a failure with the last step that the island has made since its
  // start. Returns how long to wait before the next start, or nothing if there
  // should be none. Without `is_limited` there always is one.
  std::optional<absl::Duration> AfterFailureAt(uint64_t step, bool is_limited);

 private:
  absl::Duration first_pause_;
  uint64_t furthest_step_ = 0;
  int without_progress_ = 0;
  // The part of these for which there was a limit.
  int limited_ = 0;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_RANK_WATCH_H_
