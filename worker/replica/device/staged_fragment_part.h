// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A part in host memory for a master on a device: the held values are fetched
// for a snapshot and for an update, and brought back where they have changed.
#ifndef WORKER_REPLICA_DEVICE_STAGED_FRAGMENT_PART_H_
#define WORKER_REPLICA_DEVICE_STAGED_FRAGMENT_PART_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// As FragmentPartFactory. `queue`, which is the training thread's, and
// `snapshots` outlive the part.
absl::StatusOr<std::unique_ptr<FragmentPart>> MakeStagedFragmentPart(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, DeviceQueue* queue,
    SnapshotPool* snapshots);

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_STAGED_FRAGMENT_PART_H_
