// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns the stamps of ranks (worker/collective/rank_stamps.h), whose clocks
// differ, into times.
#ifndef WORKER_SUPERVISOR_STAMP_READER_H_
#define WORKER_SUPERVISOR_STAMP_READER_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "worker/collective/rank_stamps.h"
#include "worker/supervisor/rank_watch.h"

namespace causeway {

class StampReader {
 public:
  explicit StampReader(RankStampPage* page) : page_(page) {}

  // Returns the views, at the time `now` of any clock, of the ranks whose
  // processes are live children of this one. Call it at least five times a
  // second.
  std::vector<RankView> Read(absl::Time now);

  // Returns the last step that any rank has completed, including ranks of ended
  // processes.
  uint64_t LastStep();

 private:
  // The reader's observations of a rank. The times exclude those in which the
  // reader did not run, because then the ranks may not have run either.
  struct Seen {
    struct Lane {
      uint64_t count = 0;
      // The time since the first sight of the section.
      absl::Duration time;
    };
    pid_t process = 0;
    uint64_t beat = 0;
    absl::Duration silence;
    std::array<Lane, kRankLanes> lanes;
  };

  // Returns a rank's activity in a lane, `since_last` after the last reading.
  static RankView::Lane ViewOf(const RankStamps::Lane& stamps, uint64_t beat,
                               absl::Duration since_last, Seen::Lane& seen);

  RankStampPage* const page_;
  absl::Time read_at_ = absl::InfiniteFuture();
  // By rank.
  std::map<int, Seen> seen_;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_STAMP_READER_H_
