// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A part of a fragment in host memory. Per held value, it takes 4 bytes for the
// anchor; 4 for the snapshot, from the send until the update is applied; and 8
// for an update under way. A contribution under way takes 4 more with error
// feedback, or if ranks share a strip. Error feedback takes 4 bytes per encoded
// value.
//
// Training waits for one copy of the held values at a send, and for one pass
// over them when an update is applied.
#ifndef WORKER_REPLICA_HOST_FRAGMENT_PART_H_
#define WORKER_REPLICA_HOST_FRAGMENT_PART_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// Copies the held values between `held` and a master that the host cannot
// access, and waits for the copy.
using MasterCopy = std::function<absl::Status(float* master, bool to_master,
                                              absl::Span<float> held)>;

// See FragmentPartFactory; `master` is host memory, here and in all calls.
// `snapshots` is for the parts of one rank and outlives them.
//
// With `copy`, the masters of all later calls are in other memory: `copy`
// fetches the held values for a snapshot and for an update, and writes them
// back if they changed. `master` is then a copy of the held values, and `share`
// describes a shard of only these.
std::unique_ptr<FragmentPart> MakeHostFragmentPart(
    const FragmentShare& share, const ReplicaOptions& options,
    const float* master, SnapshotPool* snapshots, MasterCopy copy = nullptr);

}  // namespace causeway

#endif  // WORKER_REPLICA_HOST_FRAGMENT_PART_H_
