// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The device of one rank, shared by its fragments: two queues with memory for
// staging pieces of a fragment, and reusable memory for whole parts.
//
//   const PartDevice::Background stage(device);
//   stage->queue->Copy(anchor.values(), bytes, stage->anchor);
//   ...
//   return stage->queue->Synchronize();
//
// The device holds the staged pieces (64 MiB at the usual size) and one
// snapshot of the largest part. Pinned host memory holds the rest: anchors,
// their prepared successors, snapshots whose pseudo-gradient is made, and
// snapshots beyond the first. If the options say so, all of these are on the
// device. Values that the host encodes or decodes are always in pinned memory.
#ifndef WORKER_REPLICA_DEVICE_PART_DEVICE_H_
#define WORKER_REPLICA_DEVICE_PART_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "quantization/strips/layout.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {

class PartDevice {
 public:
  struct Options {
    // The queues of the training thread and of the other threads, on one
    // device.
    std::shared_ptr<DeviceQueue> training;
    std::unique_ptr<DeviceQueue> background;
    // If true, anchors and snapshots are on the device instead of in host
    // memory. That takes 4 bytes per parameter there, and 8 for the fragments
    // whose updates are on their way; training then waits for no bus.
    bool anchors_on_device = false;
    // If true, parts reserve all memory that their updates need. A process with
    // several GPUs must set this, because allocating while they exchange data
    // can stop all of them.
    bool reserves = false;
    // The size of staged pieces, in strips.
    uint64_t piece_strips = 64;
  };

  // One thread's queue, with device memory for pieces of a fragment.
  struct Stage {
    DeviceQueue* queue = nullptr;
    float* anchor = nullptr;
    float* values = nullptr;
  };

  // Exclusive use of the stage that the fragments' threads beside training
  // share. Synchronize the queue before this is destroyed.
  class Background {
   public:
    explicit Background(PartDevice* device)
        : lock_(&device->background_mu_), stage_(device->background_) {}

    const Stage& operator*() const { return stage_; }
    const Stage* operator->() const { return &stage_; }

   private:
    const absl::MutexLock lock_;
    const Stage& stage_;
  };

  // Memory that its destructor returns to the device. Move-only.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(block_, other.block_);
      return *this;
    }
    ~Lease() { Release(); }

    void Release();
    bool empty() const { return owner_ == nullptr; }
    char* bytes() const { return static_cast<char*>(block_.memory); }
    float* values() const { return static_cast<float*>(block_.memory); }
    // Returns whether the host may access the memory.
    bool is_pinned() const { return block_.kind == MemoryKind::kPinned; }

   private:
    friend class PartDevice;
    struct Block {
      MemoryKind kind = MemoryKind::kPinned;
      void* memory = nullptr;
      size_t bytes = 0;
    };
    Lease(PartDevice* owner, Block block) : owner_(owner), block_(block) {}

    PartDevice* owner_ = nullptr;
    Block block_;
  };

  // RESOURCE_EXHAUSTED: there is no memory for the pieces.
  static absl::StatusOr<std::unique_ptr<PartDevice>> Create(Options options);
  // All leases must have ended.
  ~PartDevice();

  // The stage that only the training thread uses.
  const Stage& training() const { return training_; }
  uint64_t piece_values() const { return options_.piece_strips * kStripValues; }

  // Makes room on the device for a snapshot of `values` values, which all
  // snapshots share, unless anchors are on the device. Must not be called while
  // a snapshot is leased. RESOURCE_EXHAUSTED: out of memory.
  absl::Status ReserveSnapshot(uint64_t values);
  // Reserves memory for one later lease of this size, in addition to other
  // reservations, if the options say so. RESOURCE_EXHAUSTED: out of memory.
  absl::Status ReserveAnchor(uint64_t values);
  absl::Status ReservePinned(size_t bytes);

  // The following are thread-safe. Leases of no bytes are empty.
  // RESOURCE_EXHAUSTED: there is no memory for a new block.

  // Takes the shared memory on the device if it is free, or else the kind of
  // memory that anchors are kept in.
  absl::StatusOr<Lease> TakeSnapshot(uint64_t values);
  // Returns whether this is the device's memory that all snapshots share.
  bool is_shared(const Lease& lease) const;
  // Takes the kind of memory that anchors are kept in, or pinned memory if the
  // device is full.
  absl::StatusOr<Lease> TakeAnchor(uint64_t values);
  absl::StatusOr<Lease> TakePinned(size_t bytes);
  absl::StatusOr<Lease> TakeOnDevice(size_t bytes);

 private:
  explicit PartDevice(Options options) : options_(std::move(options)) {}
  absl::StatusOr<Stage> MakeStage(DeviceQueue* queue);
  MemoryKind anchor_kind() const {
    return options_.anchors_on_device ? MemoryKind::kDevice
                                      : MemoryKind::kPinned;
  }
  absl::Status Reserve(MemoryKind kind, size_t bytes);
  // Takes the smallest spare block that is large enough, or else a new one.
  absl::StatusOr<Lease> Take(MemoryKind kind, size_t bytes);
  void Return(const Lease::Block& block);

  const Options options_;
  Stage training_;
  // The memory of both stages.
  std::vector<void*> pieces_;

  absl::Mutex background_mu_;
  Stage background_ ABSL_GUARDED_BY(background_mu_);

  mutable absl::Mutex mu_;
  // The memory for a snapshot on the device, while it is not leased.
  Lease::Block snapshot_ ABSL_GUARDED_BY(mu_);
  void* snapshot_memory_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<Lease::Block> spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_PART_DEVICE_H_
