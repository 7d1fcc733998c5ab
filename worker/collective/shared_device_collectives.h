// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives of ranks that are threads of one process and have one device:
// each reads what it needs straight from the others' memory. NCCL refuses two
// ranks on one device.
#ifndef WORKER_COLLECTIVE_SHARED_DEVICE_COLLECTIVES_H_
#define WORKER_COLLECTIVE_SHARED_DEVICE_COLLECTIVES_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collective/device_collectives.h"

namespace causeway {

// Arithmetic in the memory of one device. Both return when it is done; errors
// are the device's.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // to[i] <- from[0][i] + from[1][i] + ..., added in this order. `to` may be
  // one of `from`.
  virtual absl::Status Sum(absl::Span<const float* const> from, int64_t size,
                           float* to) = 0;
  virtual absl::Status Copy(const float* from, int64_t size, float* to) = 0;
};

// The device that is the host. Of use in tests: a rank that fails may free what
// another still reads, which a GPU's runtime waits for and the host does not.
std::unique_ptr<DeviceMemory> MakeHostMemory();

// For `rank`. Sums are in order of rank.
std::unique_ptr<DeviceCollectives> MakeSharedDeviceCollectives(
    int rank, std::unique_ptr<DeviceMemory> memory);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_SHARED_DEVICE_COLLECTIVES_H_
