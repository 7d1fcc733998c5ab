// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the fragments of one rank share of its device: two queues with memory to
// stage pieces of a fragment in, and memory for whole parts that is used again.
//
//   const PartDevice::Background stage(device);
//   stage->queue->Copy(anchor.values(), bytes, stage->anchor);
//   ...
//   return stage->queue->Synchronize();
//
// On the device there are the staged pieces (72 MiB at the usual size), one
// snapshot of the largest part, and anchors if the options say so. All else is
// pinned memory of the host: anchors, what is prepared to replace them, and
// snapshots beyond the first.
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
    // For the training thread, and for the others. Both of one device.
    std::unique_ptr<DeviceQueue> training;
    std::unique_ptr<DeviceQueue> background;
    // Instead of in the host's memory: takes 4 bytes per parameter more there,
    // and the bus carries less.
    bool anchors_on_device = false;
    // Of staged pieces.
    uint64_t piece_strips = 64;
  };

  // One thread's queue, with memory of the device for pieces of a fragment.
  struct Stage {
    DeviceQueue* queue = nullptr;
    float* anchor = nullptr;
    float* values = nullptr;
    char* encoded = nullptr;
  };

  // The stage of the threads beside training, for one of them: each fragment's
  // link has its own. What it has begun has ended before it is destroyed.
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

  // Memory that goes back when it is destroyed. Move-only.
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
    // Whether the host may look at it.
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

  // RESOURCE_EXHAUSTED: the pieces do not fit.
  static absl::StatusOr<std::unique_ptr<PartDevice>> Create(Options options);
  // All leases have ended.
  ~PartDevice();

  // For the training thread.
  const Stage& training() const { return training_; }
  uint64_t piece_values() const { return options_.piece_strips * kStripValues; }

  // Makes room for snapshots of so many values on the device. Not while one is
  // out. RESOURCE_EXHAUSTED.
  absl::Status ReserveSnapshot(uint64_t values);

  // Thread-safe, and RESOURCE_EXHAUSTED where they must take new memory. Of
  // nothing they are empty.

  // On the device if it is reserved there and free, else pinned.
  absl::StatusOr<Lease> TakeSnapshot(uint64_t values);
  // Where anchors are.
  absl::StatusOr<Lease> TakeAnchor(uint64_t values);
  absl::StatusOr<Lease> TakePinned(size_t bytes);

 private:
  explicit PartDevice(Options options) : options_(std::move(options)) {}
  absl::StatusOr<Stage> MakeStage(DeviceQueue* queue);
  // The smallest spare block that is large enough, else a new one.
  absl::StatusOr<Lease> Take(MemoryKind kind, size_t bytes);
  void Return(const Lease::Block& block);

  const Options options_;
  Stage training_;
  // Of the stages.
  std::vector<void*> pieces_;

  absl::Mutex background_mu_;
  Stage background_ ABSL_GUARDED_BY(background_mu_);

  absl::Mutex mu_;
  // The snapshot on the device, while it is here.
  Lease::Block snapshot_ ABSL_GUARDED_BY(mu_);
  void* snapshot_memory_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<Lease::Block> spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_PART_DEVICE_H_
