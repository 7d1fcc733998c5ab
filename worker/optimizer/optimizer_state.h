// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_OPTIMIZER_OPTIMIZER_STATE_H_
#define WORKER_OPTIMIZER_OPTIMIZER_STATE_H_

#include <cstdint>
#include <vector>

namespace causeway {

// The state of an optimizer, of all ranks together, in host memory.
struct OptimizerState {
  // The number of updates it has made.
  uint64_t updates = 0;
  // AdamW's first moment or Muon's momentum, in the order of the parameters;
  // empty if there is none.
  std::vector<float> first_moment;
  // AdamW's second moment of the parameters that AdamW updates, in their order.
  std::vector<float> second_moment;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_OPTIMIZER_STATE_H_
