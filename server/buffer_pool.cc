// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/buffer_pool.h"

#include <sys/mman.h>

#include <map>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;

struct Free {
  void operator()(char* memory) const {
    ::operator delete(memory, std::align_val_t(kHugePageBytes));
  }
};
using Memory = std::unique_ptr<char, Free>;

Memory Allocate(uint64_t bytes) {
  Memory memory(static_cast<char*>(
      ::operator new(bytes, std::align_val_t(kHugePageBytes))));
  // This is only advice: without huge pages everything works, only slower. The
  // last page that is touched must not reach beyond the buffer.
  const uint64_t whole = bytes / kHugePageBytes * kHugePageBytes;
  if (whole > 0) madvise(memory.get(), whole, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

struct BufferPool::Idle {
  explicit Idle(uint64_t bytes) : capacity(bytes) {}

  const uint64_t capacity;
  absl::Mutex mu;
  // The idle buffers by size.
  std::multimap<uint64_t, Memory> buffers ABSL_GUARDED_BY(mu);
  uint64_t bytes ABSL_GUARDED_BY(mu) = 0;
};

BufferPool::BufferPool(uint64_t idle_capacity_bytes)
    : idle_(std::make_shared<Idle>(idle_capacity_bytes)) {}

BufferPool::~BufferPool() = default;

uint64_t BufferPool::idle_bytes() const {
  absl::MutexLock lock(&idle_->mu);
  return idle_->bytes;
}

PooledBuffer BufferPool::Take(uint64_t bytes) {
  Memory memory;
  {
    absl::MutexLock lock(&idle_->mu);
    const auto found = idle_->buffers.find(bytes);
    if (found != idle_->buffers.end()) {
      memory = std::move(found->second);
      idle_->buffers.erase(found);
      idle_->bytes -= bytes;
    }
  }
  if (memory == nullptr) memory = Allocate(bytes);
  char* const data = memory.release();
  return {.bytes = absl::MakeSpan(data, bytes),
          .owner = std::shared_ptr<const void>(
              data, [idle = idle_, bytes](char* returned) {
                Memory back(returned);
                absl::MutexLock lock(&idle->mu);
                if (bytes > idle->capacity - idle->bytes) return;
                idle->buffers.emplace(bytes, std::move(back));
                idle->bytes += bytes;
              })};
}

}  // namespace causeway
