// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/disk_threads.h"

#include <utility>

namespace causeway {

DiskThreads::DiskThreads(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

DiskThreads::~DiskThreads() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void DiskThreads::Run(std::function<void()> work) {
  absl::MutexLock lock(&mu_);
  queue_.push_back(std::move(work));
}

void DiskThreads::Loop() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work_or_ends = [this] {
        mu_.AssertReaderHeld();
        return !queue_.empty() || ending_;
      };
      mu_.Await(absl::Condition(&has_work_or_ends));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace causeway
