// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/deferred_queue.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "glog/logging.h"
#include "outer_optimizer/mixing.h"

namespace causeway {
namespace {

constexpr size_t kPageBytes = 4096;

class Device : public DeferredDevice {
 public:
  ~Device() override {
    absl::MutexLock lock(&mu_);
    CHECK(memory_.empty()) << "memory of the device is left over";
  }

  std::unique_ptr<DeviceQueue> NewQueue() override;

  int64_t device_bytes() const override {
    absl::MutexLock lock(&mu_);
    return bytes_;
  }
  int64_t allocations() const override {
    absl::MutexLock lock(&mu_);
    return allocations_;
  }
  void set_device_limit(int64_t bytes) override {
    absl::MutexLock lock(&mu_);
    limit_ = bytes;
  }

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) {
    const size_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    absl::MutexLock lock(&mu_);
    ++allocations_;
    const bool is_device = kind == MemoryKind::kDevice;
    if (is_device && bytes_ + static_cast<int64_t>(bytes) > limit_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the device has no ", bytes, " bytes more"));
    }
    void* const memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    std::memset(memory, 0xff, rounded);
    if (is_device) {
      bytes_ += static_cast<int64_t>(bytes);
      CHECK_EQ(mprotect(memory, rounded, PROT_NONE), 0);
    }
    memory_[memory] = {kind, bytes, rounded};
    return memory;
  }

  void Free(MemoryKind kind, void* memory) {
    absl::MutexLock lock(&mu_);
    const auto found = memory_.find(memory);
    CHECK(found != memory_.end() && found->second.kind == kind);
    if (kind == MemoryKind::kDevice) {
      bytes_ -= static_cast<int64_t>(found->second.bytes);
    }
    munmap(memory, found->second.rounded);
    memory_.erase(found);
  }

  // Does the operations with the device's memory within their reach.
  void Run(std::vector<std::function<void()>>& operations) {
    absl::MutexLock lock(&mu_);
    Protect(PROT_READ | PROT_WRITE);
    for (const std::function<void()>& operation : operations) operation();
    Protect(PROT_NONE);
    operations.clear();
  }

 private:
  struct Memory {
    MemoryKind kind;
    size_t bytes;
    size_t rounded;
  };

  void Protect(int protection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& [memory, about] : memory_) {
      if (about.kind != MemoryKind::kDevice) continue;
      CHECK_EQ(mprotect(memory, about.rounded, protection), 0);
    }
  }

  mutable absl::Mutex mu_;
  std::map<void*, Memory> memory_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t allocations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t limit_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
};

void CheckAligned(const void* array) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(array) % 16, 0u);
}

class DeferredQueue : public DeviceQueue {
 public:
  explicit DeferredQueue(Device* device) : device_(device) {}

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    return device_->Allocate(kind, bytes);
  }
  void Free(MemoryKind kind, void* memory) override {
    device_->Free(kind, memory);
  }

  void Copy(const void* from, size_t bytes, void* to) override {
    if (bytes == 0) return;
    Do([=] { std::memcpy(to, from, bytes); });
  }

  void EncodeDifference(const CodecSpec& spec, const EncodeOptions& options,
                        uint64_t first_value, const float* anchor,
                        const float* values, uint64_t count,
                        char* encoded) override {
    CHECK(HasDeviceKernels(spec));
    for (const void* const array :
         {static_cast<const void*>(anchor), static_cast<const void*>(values),
          static_cast<const void*>(encoded)}) {
      CheckAligned(array);
    }
    Do([=] {
      std::vector<float> difference(count);
      PseudoGradient(absl::MakeConstSpan(anchor, count),
                     absl::MakeConstSpan(values, count),
                     absl::MakeSpan(difference));
      const std::unique_ptr<Encoder> encoder = NewEncoder(
          spec, options, count,
          absl::MakeSpan(encoded, MaxEncodedBytes(spec, count)), first_value);
      encoder->Encode(0, difference, {});
      CHECK_EQ(encoder->Finish(), MaxEncodedBytes(spec, count));
    });
  }

  void DecodeAdd(const CodecSpec& spec, const char* encoded, uint64_t count,
                 float* values) override {
    CHECK(HasDeviceKernels(spec));
    CheckAligned(encoded);
    CheckAligned(values);
    Do([=] {
      std::vector<float> decoded(count);
      const absl::Status status =
          Decode(spec, absl::string_view(encoded, MaxEncodedBytes(spec, count)),
                 absl::MakeSpan(decoded));
      CHECK(status.ok()) << status;
      causeway::Rebase(decoded, absl::MakeSpan(values, count));
    });
  }

  void Mix(const float* anchor, float mixing, uint64_t count,
           float* values) override {
    CheckAligned(anchor);
    CheckAligned(values);
    Do([=] {
      causeway::Mix(absl::MakeConstSpan(anchor, count), mixing,
                    absl::MakeSpan(values, count));
    });
  }

  void Rebase(const float* change, uint64_t count, float* values) override {
    CheckAligned(change);
    CheckAligned(values);
    Do([=] {
      causeway::Rebase(absl::MakeConstSpan(change, count),
                       absl::MakeSpan(values, count));
    });
  }

  absl::Status Synchronize() override {
    absl::MutexLock lock(&mu_);
    CheckThread();
    device_->Run(operations_);
    return absl::OkStatus();
  }

 private:
  void Do(std::function<void()> operation) {
    {
      absl::MutexLock lock(&mu_);
      CheckThread();
      operations_.push_back(std::move(operation));
    }
    // Now is when another one should not come.
    std::this_thread::yield();
  }

  void CheckThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (operations_.empty()) thread_ = std::this_thread::get_id();
    CHECK(thread_ == std::this_thread::get_id())
        << "two threads use the queue at once";
  }

  Device* const device_;
  absl::Mutex mu_;
  std::vector<std::function<void()>> operations_ ABSL_GUARDED_BY(mu_);
  // Whose operations they are.
  std::thread::id thread_ ABSL_GUARDED_BY(mu_);
};

std::unique_ptr<DeviceQueue> Device::NewQueue() {
  return std::make_unique<DeferredQueue>(this);
}

}  // namespace

std::unique_ptr<DeferredDevice> NewDeferredDevice() {
  return std::make_unique<Device>();
}

}  // namespace causeway
