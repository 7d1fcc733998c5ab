// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How many of the H inner steps of a round an island trains, so that it arrives
// with the others (H_i of SessionResponse).
//
// A round waits for a grace window from its quorum on. An island whose steps
// take s, where the island that completes the quorum takes p, arrives up to
//
//   H (s - p) + overlap p
//
// after the quorum: what it is slower in one window, and what the others may
// have gone on meanwhile without its update. If that is more than the window,
// every round would close without it: it would rebase for ever, and what it
// trains would be merged when the run ends. Such an island gets H p / s steps;
// all others get H, unless the run asks for shares for everybody, which are
// relative to the fastest, or for nobody.
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
  // Steps that an island may train between a send and the use of its update.
  uint64_t overlap_steps = 0;
};

// H_i, 1 to H, of an island whose inner step takes `own`, where `all` are those
// of live islands, its own among them. Zero durations are unknown. 0 means
// that the island trains all steps.
uint64_t InnerSteps(const InnerStepsOptions& options, absl::Duration own,
                    std::vector<absl::Duration> all);

}  // namespace causeway

#endif  // SERVER_RULES_INNER_STEPS_H_
