// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A part of a fragment in host memory. Bytes per held value: 4 for the anchor,
// and while they are needed 4 for the snapshot and 8 for an update; per encoded
// value 4 with error feedback; 12 with eager updates.
//
// Training is held up by one copy of the held values at a send (two passes over
// them more with eager updates), and one pass over them when an update is
// applied.
#ifndef WORKER_REPLICA_HOST_FRAGMENT_PART_H_
#define WORKER_REPLICA_HOST_FRAGMENT_PART_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// Copies the held values between a master that the host does not reach and
// `held`, and waits for it.
using MasterCopy = std::function<absl::Status(float* master, bool to_master,
                                              absl::Span<float> held)>;

// As FragmentPartFactory; `master` is host memory, there and in all calls.
// `snapshots` is for parts of one rank and outlives them.
//
// With `copy` the masters of all calls but this one are somewhere else: the
// held values are fetched for a snapshot and for an update, and brought back
// where they have changed. Here `master` is a copy of them, and `share` says
// that they are all of the shard.
std::unique_ptr<FragmentPart> MakeHostFragmentPart(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, SnapshotPool* snapshots,
    MasterCopy copy = nullptr);

}  // namespace causeway

#endif  // WORKER_REPLICA_HOST_FRAGMENT_PART_H_
