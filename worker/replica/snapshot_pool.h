// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_REPLICA_SNAPSHOT_POOL_H_
#define WORKER_REPLICA_SNAPSHOT_POOL_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/os/huge_pages.h"

namespace causeway {

// A pool of memory for snapshots and updates of fragments, because fresh memory
// from the system costs more than the copy into it. Grows to the largest number
// of vectors in use at one time. Thread-safe.
class SnapshotPool {
 public:
  // Returns `size` values, which are unspecified.
  LargeVector<float> Take(size_t size) {
    LargeVector<float> memory;
    {
      absl::MutexLock lock(&mu_);
      if (!spare_.empty()) {
        memory = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    memory.resize(size);
    return memory;
  }

  void Return(LargeVector<float> memory) {
    if (memory.capacity() == 0) return;
    absl::MutexLock lock(&mu_);
    spare_.push_back(std::move(memory));
  }

 private:
  absl::Mutex mu_;
  std::vector<LargeVector<float>> spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_REPLICA_SNAPSHOT_POOL_H_
