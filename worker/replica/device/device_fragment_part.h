// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A part of a fragment on a rank that trains on a device. The device computes
// the pseudo-gradient, which the host encodes, and mixes updates, which the
// host decodes, with the same bits as worker/replica/host_fragment_part.h.
//
// Anchors are in pinned host memory (or on the device, if PartDevice says so)
// and go through the device piece by piece. A snapshot is a copy within the
// device; when BeginContribution returns, the pseudo-gradient is made, and the
// snapshot waits in pinned memory for the update. Per value, the bus carries
// for a contribution 4 bytes down and 8 up, for an update 8 down and 4 up, and
// for its application 8 down. The host computes digests: XXH3 is sequential,
// and the host has the bytes anyway.
#ifndef WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_
#define WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/replica/device/part_device.h"
#include "worker/replica/fragment_part.h"

namespace causeway {

// See FragmentPartFactory; `master` is memory of the device, here and in all
// calls. `device` is for the parts of one rank and outlives them.
absl::StatusOr<std::unique_ptr<FragmentPart>> MakeDeviceFragmentPart(
    const FragmentShare& share, const ReplicaOptions& options,
    const float* master, PartDevice* device);

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_
