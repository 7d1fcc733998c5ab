// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Moves vectors between the devices of ranks: by NCCL (gpu_collectives.h), or
// by copies if several ranks share a device (shared_gpu_collectives.cu). A
// communicator calls it once the ranks have agreed on the operation by messages
// (message_communicator.h), so that late, stuck or dead ranks are found as on
// the CPU.
#ifndef WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_
#define WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"

namespace causeway {

// One vector per rank, all of the same size, and their shards.
struct DeviceVectors {
  // This rank's vector, in device memory, with no write pending.
  absl::Span<float> own;
  // The address of each rank's vector. Only ranks that are threads of one
  // process can use it.
  std::vector<float*> addresses;
  // The ranks' shards of the vectors, by rank.
  std::vector<Slice> shards;
};

// One rank's side, for the communicator's thread, except Abort. Both operations
// return when this rank's part is done, with these errors:
//   DEADLINE_EXCEEDED  It is not done by the deadline.
//   otherwise          The device or the network of devices has failed.
// After an error the object must not be used.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // own[own shard] <- sum over the ranks. The rest of `own` stays as it is.
  virtual absl::Status ReduceScatter(const DeviceVectors& vectors,
                                     absl::Time deadline) = 0;
  // own[shard of r] <- the values of rank r there, for every r.
  virtual absl::Status AllGather(const DeviceVectors& vectors,
                                 absl::Time deadline) = 0;

  // Makes the running operation, and later ones, fail soon. Thread-safe.
  virtual void Abort() = 0;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_
