// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads that open what islands fetch. Reading and verifying an update may
// take seconds, and gRPC needs its few threads for heartbeats.
//
//   OpeningThreads openers;
//   openers.Run([this] { ... });
#ifndef SERVER_EDGE_OPENING_THREADS_H_
#define SERVER_EDGE_OPENING_THREADS_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

// Thread-safe.
class OpeningThreads {
 public:
  static constexpr int kThreads = 4;

  OpeningThreads();
  // Returns once everything has run.
  ~OpeningThreads();

  OpeningThreads(const OpeningThreads&) = delete;
  OpeningThreads& operator=(const OpeningThreads&) = delete;

  // Calls `open` on one of the threads. Does not wait.
  void Run(std::function<void()> open);

 private:
  void Loop();

  absl::Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace causeway

#endif  // SERVER_EDGE_OPENING_THREADS_H_
