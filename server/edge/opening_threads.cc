// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/opening_threads.h"

#include <utility>

namespace causeway {

OpeningThreads::OpeningThreads() {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Loop(); });
}

OpeningThreads::~OpeningThreads() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void OpeningThreads::Run(std::function<void()> open) {
  absl::MutexLock lock(&mu_);
  queue_.push_back(std::move(open));
}

void OpeningThreads::Loop() {
  while (true) {
    std::function<void()> open;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work_or_ends = [this] {
        mu_.AssertReaderHeld();
        return !queue_.empty() || ending_;
      };
      mu_.Await(absl::Condition(&has_work_or_ends));
      if (queue_.empty()) return;
      open = std::move(queue_.front());
      queue_.pop_front();
    }
    open();
  }
}

}  // namespace causeway
