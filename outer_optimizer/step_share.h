// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The steps of the run that a slow island trains: `share` (H_i) of every
// `round` (H) consecutive steps, spread evenly. It skips the other steps, so
// that it reaches the run's position together with the faster islands.
#ifndef OUTER_OPTIMIZER_STEP_SHARE_H_
#define OUTER_OPTIMIZER_STEP_SHARE_H_

#include <cstdint>

namespace causeway {

// Returns whether the island trains `step`, counted from 1. `share` is 1 to
// `round`, or 0 for all steps. step * share must fit into 64 bits.
constexpr bool IsTrained(uint64_t step, uint64_t share, uint64_t round) {
  return share == 0 || step * share / round > (step - 1) * share / round;
}

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_STEP_SHARE_H_
