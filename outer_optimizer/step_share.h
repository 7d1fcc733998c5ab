// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which of the run's steps a slow island trains: `share` (H_i) of every `round`
// (H) consecutive ones, spread evenly; it passes over the others, so that it is
// at the run's position when the faster islands are.
#ifndef OUTER_OPTIMIZER_STEP_SHARE_H_
#define OUTER_OPTIMIZER_STEP_SHARE_H_

#include <cstdint>

namespace causeway {

// For steps from 1 and 1 <= share <= round; a share of 0 is all steps.
// step * share must fit into 64 bits.
constexpr bool IsTrained(uint64_t step, uint64_t share, uint64_t round) {
  return share == 0 || step * share / round > (step - 1) * share / round;
}

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_STEP_SHARE_H_
