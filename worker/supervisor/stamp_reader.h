// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns the stamps of ranks (worker/collective/rank_stamps.h), whose processes
// have clocks of their own, into times.
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

  // Returns what the ranks do whose process is a child of this one and has not
  // ended, at the time `now` of any clock. Call it five times a second or more.
  std::vector<RankView> Read(absl::Time now);

  // Returns the last step of the run that a rank has begun, of processes that
  // have ended, too.
  uint64_t LastStep();

 private:
  // Keeps what this reader has seen of a rank. The times leave out those in
  // which the reader did not run, because then the ranks may not have run
  // either.
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

  // Returns what a rank does in a lane, `since_last` after the last reading.
  static RankView::Lane ViewOf(const RankStamps::Lane& stamps, uint64_t beat,
                               absl::Duration since_last, Seen::Lane& seen);

  RankStampPage* const page_;
  absl::Time read_at_ = absl::InfiniteFuture();
  // By rank.
  std::map<int, Seen> seen_;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_STAMP_READER_H_
