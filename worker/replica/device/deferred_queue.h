// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A device for tests, on the host. Its queues do everything as late as they
// may, in Synchronize: who looks at a result too early, or reuses what is still
// to be read, gets wrong values. Its memory cannot be touched but by operations
// of queues: the host's reads and writes end the program, and so do two threads
// in one queue. Memory is full of NaN at first.
#ifndef WORKER_REPLICA_DEVICE_DEFERRED_QUEUE_H_
#define WORKER_REPLICA_DEVICE_DEFERRED_QUEUE_H_

#include <cstdint>
#include <memory>

#include "worker/replica/device/device_queue.h"

namespace causeway {

class DeferredDevice {
 public:
  virtual ~DeferredDevice() = default;

  // Outlived by the device.
  virtual std::unique_ptr<DeviceQueue> NewQueue() = 0;

  // Bytes that are allocated now.
  virtual int64_t device_bytes() const = 0;
  // How often memory was allocated.
  virtual int64_t allocations() const = 0;
  // What Allocate gives of device memory at most, in all.
  virtual void set_device_limit(int64_t bytes) = 0;
};

std::unique_ptr<DeferredDevice> NewDeferredDevice();

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEFERRED_QUEUE_H_
