// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer loop's operations on a device: copies to and from it, and the
// arithmetic of outer_optimizer/mixing.h. The implementation is a CUDA stream
// (cuda_queue.cu).
//
//   queue->Copy(anchor, 4 * n, staged);
//   queue->Subtract(values, n, staged);
//   queue->Copy(staged, 4 * n, host);
//   RETURN_IF_ERROR(queue->Synchronize());
#ifndef WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_
#define WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace causeway {

enum class MemoryKind {
  // Only operations of queues may touch it.
  kDevice,
  // Host memory that the device can access.
  kPinned,
};

// A run of values that is consecutive in two arrays: in a rank's shard and in
// the array of the values that a part holds.
struct DeviceRun {
  int64_t in_shard = 0;
  int64_t in_part = 0;
  int64_t size = 0;
};

// Operations run in order, at some time between the call and the end of the
// next Synchronize: until then their inputs must stay and their outputs are
// unspecified. After its first error a queue does nothing more. For one thread
// at a time, except for Allocate and Free, which are thread-safe. All queues of
// the device may use its memory.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // Returns memory aligned to 256 bytes. RESOURCE_EXHAUSTED: out of memory.
  // Other errors say why the device cannot be used.
  virtual absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) = 0;
  // Frees memory from Allocate that no operation uses.
  virtual void Free(MemoryKind kind, void* memory) = 0;

  // Copies from and to either kind of memory. Other host memory works, too, but
  // is slower.
  virtual void Copy(const void* from, size_t bytes, void* to) = 0;

  // The rest is for device memory, in arrays that are aligned to 16 bytes and
  // do not overlap. The host computes the same bits.

  // values += change, and values -= other.
  virtual void Add(const float* change, uint64_t count, float* values) = 0;
  virtual void Subtract(const float* other, uint64_t count, float* values) = 0;
  // Copies the part's values [begin, end) between the shard and `values`, which
  // begins with value `begin`. `runs` has `count` runs, in the part's order and
  // with all its values; runs need no alignment in the shard.
  virtual void CopyRuns(const DeviceRun* runs, uint64_t count, uint64_t begin,
                        uint64_t end, float* shard, float* values,
                        bool to_shard) = 0;

  // Waits for all operations so far. Every call returns the first error of any
  // operation.
  virtual absl::Status Synchronize() = 0;
};

// Returns the device whose memory this is. INVALID_ARGUMENT: it is no device's.
absl::StatusOr<int> DeviceOfMemory(const void* memory);

// Waits for the operations so far of a stream (a cudaStream_t) to which a
// foreign program enqueues work. Makes the device current.
absl::Status AwaitStream(int device, void* stream);

// Restores the thread's current device at its end, as a foreign program
// expects.
class KeepCurrentDevice {
 public:
  KeepCurrentDevice();
  ~KeepCurrentDevice();
  KeepCurrentDevice(const KeepCurrentDevice&) = delete;
  KeepCurrentDevice& operator=(const KeepCurrentDevice&) = delete;

 private:
  static constexpr int kNone = -1;
  // Builds without CUDA do not use it.
  [[maybe_unused]] int device_ = kNone;
};

enum class QueuePriority {
  // Training waits for it.
  kHigh,
  // Its kernels take the time that training leaves.
  kLow,
};

// Returns a queue of CUDA device number `device`. FAILED_PRECONDITION: the
// program was built without CUDA. Other errors are those of CudaStatus.
absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(
    int device, QueuePriority priority);

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_
