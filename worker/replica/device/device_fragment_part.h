// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A part of a fragment on a rank that trains on a device: the pseudo-gradient
// is taken and encoded there, updates are decoded and mixed in there, and the
// bits are those of worker/replica/host_fragment_part.h.
//
// Anchors are in pinned host memory (or on the device, if PartDevice says so)
// and go through the device piece by piece. A snapshot is a copy within the
// device; it is encoded, and its memory free again, when BeginContribution
// returns. So the bus carries per value of a contribution 4 bytes down and the
// encoded ones up, of an update 4 and the encoded ones down and 4 up, and when
// it is applied 4 down, or the encoded ones. Digests are the host's: XXH3 is
// sequential, and the host has the bytes anyway.
//
// What devices have no kernels for is done by a part in host memory, for which
// the held values are fetched and brought back: eager updates, error feedback,
// and the encoding of contributions in formats without HasDeviceKernels.
// Updates may have any format; those that devices cannot decode are decoded by
// the host.
#ifndef WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_
#define WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/replica/device/part_device.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// As FragmentPartFactory; `master` is memory of the device, there and in all
// calls. `device` and `snapshots` are for parts of one rank and outlive them.
absl::StatusOr<std::unique_ptr<FragmentPart>> MakeDeviceFragmentPart(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, PartDevice* device,
    SnapshotPool* snapshots);

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEVICE_FRAGMENT_PART_H_
