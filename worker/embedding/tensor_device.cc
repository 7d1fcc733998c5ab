// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/tensor_device.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// Long enough for the bus's full speed.
constexpr size_t kPieceBytes = 8 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<TensorDevice>> TensorDevice::Create(
    int number, bool anchors_on_device) {
  auto device = absl::WrapUnique(new TensorDevice(number, anchors_on_device));
  ASSIGN_OR_RETURN(device->queue_, NewCudaQueue(number, QueuePriority::kHigh));
  ASSIGN_OR_RETURN(void* const pinned,
                   device->queue_->Allocate(MemoryKind::kPinned, kPieceBytes));
  device->pinned_ = static_cast<char*>(pinned);
  return device;
}

TensorDevice::~TensorDevice() {
  if (pinned_ == nullptr) return;
  // After an error, copies may still be running.
  queue_->Synchronize().IgnoreError();
  queue_->Free(MemoryKind::kPinned, pinned_);
}

absl::StatusOr<PartDevice*> TensorDevice::Parts() {
  if (parts_ == nullptr) {
    PartDevice::Options options = {.training = queue_,
                                   .anchors_on_device = anchors_on_device_};
    ASSIGN_OR_RETURN(options.background,
                     NewCudaQueue(number_, QueuePriority::kLow));
    ASSIGN_OR_RETURN(parts_, PartDevice::Create(std::move(options)));
  }
  return parts_.get();
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
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    queue_->Copy(from + at, piece, pinned_);
    RETURN_IF_ERROR(queue_->Synchronize());
    use(pinned_, at, piece);
  }
  return absl::OkStatus();
}

absl::Status TensorDevice::Write(
    absl::FunctionRef<void(char*, size_t, size_t)> fill, size_t bytes,
    char* to) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    fill(pinned_, at, piece);
    queue_->Copy(pinned_, piece, to + at);
    RETURN_IF_ERROR(queue_->Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace causeway
