// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_REPLICA_SNAPSHOT_POOL_H_
#define WORKER_REPLICA_SNAPSHOT_POOL_H_

#include <cstddef>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/os/huge_pages.h"

namespace causeway {

// A pool of memory for snapshots and updates of fragments, because fresh memory
// from the system costs more than the copy into it. A vector serves sizes down
// to half of its own, because anchors stay in vectors from the pool, and small
// ones would otherwise end up in the largest vectors. Thread-safe.
class SnapshotPool {
 public:
  // Returns `size` values, which are unspecified.
  LargeVector<float> Take(size_t size) {
    LargeVector<float> memory;
    {
      absl::MutexLock lock(&mu_);
      const auto best = spare_.lower_bound(size);
      if (best != spare_.end() && best->first <= 2 * size) {
        memory = std::move(best->second);
        spare_.erase(best);
      }
    }
    memory.resize(size);
    return memory;
  }

  void Return(LargeVector<float> memory) {
    const size_t capacity = memory.capacity();
    if (capacity == 0) return;
    absl::MutexLock lock(&mu_);
    spare_.emplace(capacity, std::move(memory));
  }

 private:
  absl::Mutex mu_;
  // By capacity.
  std::multimap<size_t, LargeVector<float>> spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_REPLICA_SNAPSHOT_POOL_H_
