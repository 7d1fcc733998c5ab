// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_OUTER_LOOP_CHECKPOINT_RULES_H_
#define WORKER_OUTER_LOOP_CHECKPOINT_RULES_H_

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"

namespace causeway {

// Returns whether an island that has just joined can continue from a
// checkpoint. It cannot if the coordinator no longer keeps all updates since
// the checkpoint, or went back behind it. FAILED_PRECONDITION: the checkpoint
// is of another run, island or optimizer.
absl::StatusOr<bool> CanResume(const v1::IslandCheckpoint& position,
                               const v1::JoinResponse& joined);

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_CHECKPOINT_RULES_H_
