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
  // The island has ended, and must not be restarted before someone has looked
  // at it.
  kIslandEndedForGood,
  // No process leads the island, and this one must (--island_leader).
  kLeads,
};

// Runs a process of the island without rank 0, as the flags of causeway-worker
// say. `failed` is true if it has tried to lead but another process leads.
// Returns errors of its ranks and of FindLeader; ABORTED if rank 0 has failed.
absl::StatusOr<FollowEnd> FollowLeader(
    const std::function<uint64_t()>& random_seed, bool failed);

}  // namespace causeway

#endif  // WORKER_FOLLOW_H_
