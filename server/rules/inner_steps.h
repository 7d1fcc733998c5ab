// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides how many of a round's H inner steps an island trains, so that it
// arrives together with the other islands (H_i of SessionResponse).
//
// After its quorum, a round waits for a grace window. If a step takes s on an
// island, and p on the island that completes the quorum, the former arrives up
// to
//
//   H (s - p) + overlap p
//
// after the quorum: it is slower over H steps, and the other islands may
// meanwhile have trained through the overlap. If that exceeds the grace window,
// every round would close without this island; it would rebase for ever, and
// its training would be merged only when the run ends. Such an island gets H p
// / s steps, and all others get H. A run may also ask for shares for every
// island, relative to the fastest, or for none. An island counts as at most
// eight times as fast as the median island.
//
// Pure rules: no clock, no I/O.
#ifndef SERVER_RULES_INNER_STEPS_H_
#define SERVER_RULES_INNER_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct InnerStepsOptions {
  // H, at least 1.
  uint64_t steps = 1;
  v1::SynchronizationConfig::InnerStepShares shares =
      v1::SynchronizationConfig::ALWAYS_LATE;
  uint32_t quorum = 1;
  // The longest grace window, and its share of the overlap time; 0 makes every
  // window the longest (server/rules/grace_window.h).
  absl::Duration grace;
  double grace_overlap_share = 0;
  // The steps that an island may train between a send and the use of its
  // update.
  uint64_t overlap_steps = 0;
};

// Returns H_i, 1 to H, or 0 if the island trains all steps. `own` is the
// duration of the island's inner step; `all` has the durations of all live
// islands, including this one. A duration of zero is unknown.
uint64_t InnerSteps(const InnerStepsOptions& options, absl::Duration own,
                    std::vector<absl::Duration> all);

}  // namespace causeway

#endif  // SERVER_RULES_INNER_STEPS_H_
