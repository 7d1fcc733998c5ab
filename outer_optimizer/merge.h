// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weights of the contributions to a round.
#ifndef OUTER_OPTIMIZER_MERGE_H_
#define OUTER_OPTIMIZER_MERGE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The training that went into one contribution since its anchor.
struct Effort {
  uint64_t tokens = 0;
  uint64_t inner_steps = 0;
};

// Returns the share of each contribution in the merge, in the same order. The
// shares add up to 1, each rounded once to fp32. A contribution without tokens
// has share 0, except under UNIFORM. A single contribution has share 1 exactly.
//   TOKENS                   proportional to tokens
//   UNIFORM                  equal shares
//   TOKENS_SQUARED_PER_STEP  proportional to tokens * (tokens / inner_steps),
//                            as in Decoupled DiLoCo
// Shares are NaN if a weight needs inner steps and there are none, or if all
// weights are 0.
std::vector<float> MergeShares(v1::OuterOptimizerConfig::Weighting weighting,
                               absl::Span<const Effort> efforts);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_MERGE_H_
