// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_OPTIMIZER_ADAMW_STATE_H_
#define WORKER_OPTIMIZER_ADAMW_STATE_H_

#include <cstdint>
#include <vector>

namespace causeway {

// The state of AdamW, of all ranks together, in host memory.
struct AdamWState {
  // The number of updates it has made.
  uint64_t updates = 0;
  // The moments in the order of the parameters; empty if there are none.
  std::vector<float> first_moment;
  std::vector<float> second_moment;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_ADAMW_STATE_H_
