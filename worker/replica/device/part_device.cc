// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/part_device.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

void PartDevice::Lease::Release() {
  if (owner_ == nullptr) return;
  std::exchange(owner_, nullptr)->Return(std::exchange(block_, {}));
}

absl::StatusOr<std::unique_ptr<PartDevice>> PartDevice::Create(
    Options options) {
  auto device = absl::WrapUnique(new PartDevice(std::move(options)));
  ASSIGN_OR_RETURN(device->training_,
                   device->MakeStage(device->options_.training.get()));
  ASSIGN_OR_RETURN(Stage background,
                   device->MakeStage(device->options_.background.get()));
  {
    absl::MutexLock lock(&device->background_mu_);
    device->background_ = background;
  }
  return device;
}

PartDevice::~PartDevice() {
  // After an error, operations may still be running.
  options_.background->Synchronize().IgnoreError();
  DeviceQueue& queue = *options_.training;
  queue.Synchronize().IgnoreError();
  for (void* const piece : pieces_) queue.Free(MemoryKind::kDevice, piece);
  absl::MutexLock lock(&mu_);
  for (const Lease::Block& block : spare_) queue.Free(block.kind, block.memory);
  if (snapshot_memory_ != nullptr) {
    queue.Free(MemoryKind::kDevice, snapshot_memory_);
  }
}

absl::StatusOr<PartDevice::Stage> PartDevice::MakeStage(DeviceQueue* queue) {
  Stage stage = {.queue = queue};
  for (float** const piece : {&stage.anchor, &stage.values}) {
    ASSIGN_OR_RETURN(
        void* const memory,
        queue->Allocate(MemoryKind::kDevice, piece_values() * sizeof(float)));
    pieces_.push_back(memory);
    *piece = static_cast<float*>(memory);
  }
  return stage;
}

absl::Status PartDevice::ReserveSnapshot(uint64_t values) {
  if (options_.anchors_on_device) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  CHECK_EQ(snapshot_.memory, snapshot_memory_) << "a snapshot is out";
  const size_t bytes = values * sizeof(float);
  if (bytes <= snapshot_.bytes) return absl::OkStatus();
  DeviceQueue& queue = *options_.training;
  if (snapshot_memory_ != nullptr) {
    queue.Free(MemoryKind::kDevice, std::exchange(snapshot_memory_, nullptr));
  }
  snapshot_ = {};
  ASSIGN_OR_RETURN(snapshot_memory_,
                   queue.Allocate(MemoryKind::kDevice, bytes));
  snapshot_ = {MemoryKind::kDevice, snapshot_memory_, bytes};
  return absl::OkStatus();
}

absl::Status PartDevice::ReserveAnchor(uint64_t values) {
  return Reserve(anchor_kind(), values * sizeof(float));
}

absl::Status PartDevice::ReservePinned(size_t bytes) {
  return Reserve(MemoryKind::kPinned, bytes);
}

// Leases take the smallest block that is large enough, so a small lease never
// takes a block that a larger lease needs.
absl::Status PartDevice::Reserve(MemoryKind kind, size_t bytes) {
  if (!options_.reserves || bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(void* const memory,
                   options_.training->Allocate(kind, bytes));
  absl::MutexLock lock(&mu_);
  spare_.push_back({kind, memory, bytes});
  return absl::OkStatus();
}

absl::StatusOr<PartDevice::Lease> PartDevice::TakeSnapshot(uint64_t values) {
  if (values > 0) {
    absl::MutexLock lock(&mu_);
    if (snapshot_.memory != nullptr &&
        values * sizeof(float) <= snapshot_.bytes) {
      return Lease(this, std::exchange(snapshot_, {}));
    }
  }
  return TakeAnchor(values);
}

bool PartDevice::is_shared(const Lease& lease) const {
  absl::MutexLock lock(&mu_);
  return !lease.empty() && lease.block_.memory == snapshot_memory_;
}

absl::StatusOr<PartDevice::Lease> PartDevice::TakeAnchor(uint64_t values) {
  absl::StatusOr<Lease> lease = Take(anchor_kind(), values * sizeof(float));
  if (!options_.anchors_on_device ||
      !absl::IsResourceExhausted(lease.status())) {
    return lease;
  }
  LOG_FIRST_N(WARNING, 1)
      << "anchors are in pinned memory of the host instead: "
      << lease.status().message();
  return TakePinned(values * sizeof(float));
}

absl::StatusOr<PartDevice::Lease> PartDevice::TakePinned(size_t bytes) {
  return Take(MemoryKind::kPinned, bytes);
}

absl::StatusOr<PartDevice::Lease> PartDevice::TakeOnDevice(size_t bytes) {
  return Take(MemoryKind::kDevice, bytes);
}

absl::StatusOr<PartDevice::Lease> PartDevice::Take(MemoryKind kind,
                                                   size_t bytes) {
  if (bytes == 0) return Lease();
  absl::MutexLock lock(&mu_);
  auto best = spare_.end();
  for (auto block = spare_.begin(); block != spare_.end(); ++block) {
    if (block->kind == kind && block->bytes >= bytes &&
        (best == spare_.end() || block->bytes < best->bytes)) {
      best = block;
    }
  }
  if (best != spare_.end()) {
    const Lease::Block block = *best;
    spare_.erase(best);
    return Lease(this, block);
  }
  // Allocation does not affect running operations.
  ASSIGN_OR_RETURN(void* const memory,
                   options_.training->Allocate(kind, bytes));
  return Lease(this, {kind, memory, bytes});
}

void PartDevice::Return(const Lease::Block& block) {
  absl::MutexLock lock(&mu_);
  if (block.memory == snapshot_memory_) {
    snapshot_ = block;
  } else {
    spare_.push_back(block);
  }
}

}  // namespace causeway
