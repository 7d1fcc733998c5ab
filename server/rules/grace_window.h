// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Says how long a round with a quorum waits for the other islands.
//
// An island trains on for overlap_steps after it has sent, so waiting costs
// nothing until it delays the update beyond that. With
//
//   o  when the first island began to send
//   u  how long its upload took, and the update's download will take
//   d  how long an outer step takes
//   q  when the quorum was reached
//   s  how long an inner step takes
//
// the overlap time that is left at q is o + overlap_steps * s - u - d - q. The
// window is a share of it (membership.grace_overlap_share): at least one inner
// step, because equal islands may be that far apart, and at most
// membership.grace_seconds.
#ifndef SERVER_RULES_GRACE_WINDOW_H_
#define SERVER_RULES_GRACE_WINDOW_H_

#include <cstdint>

#include "absl/time/time.h"

namespace causeway {

struct GraceOptions {
  absl::Duration most;
  // 0 makes every window `most`.
  double overlap_share = 0;
  uint64_t overlap_steps = 0;
};

// The quantities o, u, d, q and s above.
struct GraceMeasures {
  absl::Time first_offer;
  absl::Duration upload;
  absl::Duration outer_step;
  absl::Time quorum_at;
  // Zero before an island has reported it; the window is `most` then.
  absl::Duration inner_step;
};

absl::Duration GraceWindow(const GraceOptions& options,
                           const GraceMeasures& measures);

}  // namespace causeway

#endif  // SERVER_RULES_GRACE_WINDOW_H_
