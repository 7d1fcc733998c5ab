// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_EMBEDDING_TENSOR_DEVICE_H_
#define WORKER_EMBEDDING_TENSOR_DEVICE_H_

#include <cstddef>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/device/part_device.h"

namespace causeway {

// The GPU that has a training loop's tensors. Copies go through pinned host
// memory. For one thread, except for the streams.
class TensorDevice {
 public:
  // FAILED_PRECONDITION: the program was built without CUDA. Other errors are
  // those of memory and of the device.
  static absl::StatusOr<std::unique_ptr<TensorDevice>> Create(
      int number, bool anchors_on_device);
  ~TensorDevice();

  int number() const { return number_; }

  // Sets the streams (each a cudaStream_t) on which the training loop writes
  // the tensors, and forgets earlier ones.
  void SetStreams(std::set<void*> streams);
  // Waits until these streams have done their work so far.
  absl::Status AwaitStreams() const;

  // Copies from the device to pinned memory, and calls use(piece, offset,
  // bytes) for each piece.
  absl::Status Read(const char* from, size_t bytes,
                    absl::FunctionRef<void(const char*, size_t, size_t)> use);
  // Copies to the device; fill(piece, offset, bytes) writes each piece.
  absl::Status Write(absl::FunctionRef<void(char*, size_t, size_t)> fill,
                     size_t bytes, char* to);

  // Returns the device for the replica's parts. The first call takes memory of
  // the device for pieces. RESOURCE_EXHAUSTED if there is not enough.
  absl::StatusOr<PartDevice*> Parts();

 private:
  TensorDevice(int number, bool anchors_on_device)
      : number_(number), anchors_on_device_(anchors_on_device) {}

  const int number_;
  const bool anchors_on_device_;
  std::shared_ptr<DeviceQueue> queue_;
  char* pinned_ = nullptr;
  std::unique_ptr<PartDevice> parts_;

  mutable absl::Mutex mu_;
  std::set<void*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_TENSOR_DEVICE_H_
