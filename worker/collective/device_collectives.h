// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How vectors move between the devices of ranks: by NCCL
// (nccl_collectives.h), or by copies where several ranks have one device
// (shared_gpu_collectives.h). A communicator calls it once the ranks have
// agreed over messages on what comes (message_communicator.h), so that who is
// late, stuck or dead is found in the same way as on the CPU.
#ifndef WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_
#define WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/thread_pool.h"

namespace causeway {

// One vector of each rank, all of the same size, and how it is divided.
struct DeviceVectors {
  // In device memory. What writes to it has ended.
  absl::Span<float> own;
  // By rank, where its vector is. Of use only to ranks that are threads of one
  // process.
  std::vector<float*> addresses;
  // By rank.
  std::vector<Slice> shards;
};

// One rank's side; for the communicator's thread, but for Abort. Both
// operations return when this rank's part is done:
//   DEADLINE_EXCEEDED  not by the deadline.
//   else               the device or what connects the devices has failed.
// After an error the object is of no more use.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // own[own shard] <- sum over the ranks. The rest of `own` stays as it is.
  virtual absl::Status ReduceScatter(const DeviceVectors& vectors,
                                     absl::Time deadline) = 0;
  // own[shard of r] <- what rank r has there, for every r.
  virtual absl::Status AllGather(const DeviceVectors& vectors,
                                 absl::Time deadline) = 0;

  // Makes the operation under way, and later ones, fail soon. Any thread.
  virtual void Abort() = 0;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_DEVICE_COLLECTIVES_H_
