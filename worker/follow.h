// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_FOLLOW_H_
#define WORKER_FOLLOW_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

namespace causeway {

enum class FollowEnd {
  // The island has left the run.
  kIslandEnded,
  // The island has ended, and must not be started again as it is.
  kIslandEndedForGood,
  // Nobody leads the island, and this process is to (--island_leader).
  kLeads,
};

// Runs a process of the island that does not have rank 0, as the flags of
// causeway-worker say. `failed` says that it has tried to lead, and another
// process leads. Errors of its ranks and of FindLeader; ABORTED if rank 0 has
// failed.
absl::StatusOr<FollowEnd> FollowLeader(
    const std::function<uint64_t()>& random_seed, bool failed);

}  // namespace causeway

#endif  // WORKER_FOLLOW_H_
