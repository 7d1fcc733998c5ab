// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A list of callbacks that are notified of news.
//
//   Listeners listeners;
//   const uint64_t id = listeners.Add([&] { ... });
//   listeners.Notify();
//   listeners.Remove(id);
#ifndef COMMON_LISTENERS_H_
#define COMMON_LISTENERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

// Thread-safe. A listener must not block, nor add or remove listeners.
class Listeners {
 public:
  // Returns the listener's id.
  uint64_t Add(std::function<void()> listener) {
    absl::MutexLock lock(&mu_);
    listeners_.emplace(next_, std::move(listener));
    return next_++;
  }

  // When this returns, the listener is not running and will not be called.
  void Remove(uint64_t id) {
    absl::MutexLock lock(&mu_);
    listeners_.erase(id);
  }

  void Notify() {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, listener] : listeners_) listener();
  }

 private:
  absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // COMMON_LISTENERS_H_
