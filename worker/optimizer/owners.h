// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The ranks that own the matrices of Muon. A matrix is orthogonalized as a
// whole, so one rank needs its whole gradient and momentum; the values that
// AdamW updates may be divided anywhere.
#ifndef WORKER_OPTIMIZER_OWNERS_H_
#define WORKER_OPTIMIZER_OWNERS_H_

#include <vector>

#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Returns the shards of a model, by rank: consecutive slices, perhaps empty,
// such that no matrix of Muon is cut and the slowest rank's update takes the
// least time. A matrix with sides m <= n counts as its 20 m m n + 10 m m m
// floating-point operations; any other value counts as 512, for its memory
// traffic. Other cuts are at multiples of 16.
std::vector<Slice> DivideAmongOwners(const v1::TrainingConfig& config,
                                     const ModelLayout& layout, int ranks);

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_OWNERS_H_
