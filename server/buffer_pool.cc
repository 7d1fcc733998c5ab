// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/buffer_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/os/file.h"
#include "common/os/huge_pages.h"
#include "glog/logging.h"

namespace causeway {
namespace {

struct Free {
  // The length of the mapping; 0 for memory that is not in a file.
  uint64_t mapped_bytes = 0;

  void operator()(char* memory) const {
    if (mapped_bytes > 0) {
      munmap(memory, mapped_bytes);
    } else {
      ::operator delete(memory, std::align_val_t(kHugePageBytes));
    }
  }
};
using Memory = std::unique_ptr<char, Free>;

// Returns a mapped file of the folder, with its disk space reserved.
absl::StatusOr<Memory> MapFile(const std::string& folder, uint64_t bytes) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(errno, "make a file in", folder);
  // The mapping keeps the file.
  const auto closer = absl::MakeCleanup([=] { close(file); });
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error != 0) return ErrnoStatus(error, "reserve a file in", folder);
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return ErrnoStatus(errno, "map a file in", folder);
  return Memory(static_cast<char*>(mapped), Free{.mapped_bytes = bytes});
}

Memory Allocate(const std::string& folder, uint64_t bytes) {
  if (!folder.empty() && bytes > 0) {
    absl::StatusOr<Memory> mapped = MapFile(folder, bytes);
    if (mapped.ok()) return *std::move(mapped);
    LOG_EVERY_T(WARNING, 60)
        << "a version takes " << bytes
        << " bytes of memory that cannot be evicted to a file: "
        << mapped.status().message();
  }
  Memory memory(static_cast<char*>(
      ::operator new(bytes, std::align_val_t(kHugePageBytes))));
  AdviseHugePages(memory.get(), bytes);
  return memory;
}

}  // namespace

struct BufferPool::Idle {
  explicit Idle(uint64_t bytes) : capacity(bytes) {}

  absl::Mutex mu;
  uint64_t capacity ABSL_GUARDED_BY(mu);
  // The idle buffers by size.
  std::multimap<uint64_t, Memory> buffers ABSL_GUARDED_BY(mu);
  uint64_t bytes ABSL_GUARDED_BY(mu) = 0;
};

BufferPool::BufferPool(uint64_t idle_capacity_bytes, std::string folder)
    : folder_(std::move(folder)),
      idle_(std::make_shared<Idle>(idle_capacity_bytes)) {}

BufferPool::~BufferPool() {
  absl::MutexLock lock(&idle_->mu);
  idle_->capacity = 0;
  idle_->bytes = 0;
  idle_->buffers.clear();
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
  if (memory == nullptr) memory = Allocate(folder_, bytes);
  const Free free = memory.get_deleter();
  char* const data = memory.release();
  return {.bytes = absl::MakeSpan(data, bytes),
          .owner = std::shared_ptr<const void>(
              data, [idle = idle_, bytes, free](char* returned) {
                Memory back(returned, free);
                absl::MutexLock lock(&idle->mu);
                if (bytes > idle->capacity - idle->bytes) return;
                idle->buffers.emplace(bytes, std::move(back));
                idle->bytes += bytes;
              })};
}

}  // namespace causeway
