// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/tensor_device.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {
namespace {

// Long enough for the bus's full speed.
constexpr size_t kPieceBytes = 8 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<TensorDevice>> TensorDevice::Create(
    int number, bool anchors_on_device) {
  auto device = absl::WrapUnique(new TensorDevice(number));
  PartDevice::Options options = {.anchors_on_device = anchors_on_device};
  ASSIGN_OR_RETURN(options.training,
                   NewCudaQueue(number, QueuePriority::kHigh));
  ASSIGN_OR_RETURN(options.background,
                   NewCudaQueue(number, QueuePriority::kLow));
  ASSIGN_OR_RETURN(device->parts_, PartDevice::Create(std::move(options)));
  ASSIGN_OR_RETURN(device->pinned_, device->parts_->TakePinned(kPieceBytes));
  return device;
}

TensorDevice::~TensorDevice() {
  pinned_.Release();
  parts_.reset();
}

void TensorDevice::SetStreams(std::set<void*> streams) {
  absl::MutexLock lock(&mu_);
  streams_ = std::move(streams);
}

absl::Status TensorDevice::AwaitStreams() const {
  std::set<void*> streams;
  {
    absl::MutexLock lock(&mu_);
    streams = streams_;
  }
  for (void* const stream : streams) {
    RETURN_IF_ERROR(AwaitStream(number_, stream));
  }
  return absl::OkStatus();
}

absl::Status TensorDevice::Read(
    const char* from, size_t bytes,
    absl::FunctionRef<void(const char*, size_t, size_t)> use) {
  DeviceQueue* const queue = parts_->training().queue;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    queue->Copy(from + at, piece, pinned_.bytes());
    RETURN_IF_ERROR(queue->Synchronize());
    use(pinned_.bytes(), at, piece);
  }
  return absl::OkStatus();
}

absl::Status TensorDevice::Write(
    absl::FunctionRef<void(char*, size_t, size_t)> fill, size_t bytes,
    char* to) {
  DeviceQueue* const queue = parts_->training().queue;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    fill(pinned_.bytes(), at, piece);
    queue->Copy(pinned_.bytes(), piece, to + at);
    RETURN_IF_ERROR(queue->Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace causeway
