// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_FOLLOW_H_
#define WORKER_FOLLOW_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace causeway {

// Runs a process of the island that does not have rank 0, as the flags of
// causeway-worker say, until the island has left the run. Errors of its ranks;
// ABORTED if rank 0 has failed.
absl::Status FollowRank0(const std::function<uint64_t()>& random_seed);

}  // namespace causeway

#endif  // WORKER_FOLLOW_H_
