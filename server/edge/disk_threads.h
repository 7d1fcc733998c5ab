// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads for the parts of calls that wait for the disk, which may take
// seconds. gRPC has only two threads for calls on a machine with up to four
// cores, and needs them for heartbeats.
//
//   DiskThreads threads(4);
//   threads.Run([this] { ... });
#ifndef SERVER_EDGE_DISK_THREADS_H_
#define SERVER_EDGE_DISK_THREADS_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

// Thread-safe.
class DiskThreads {
 public:
  explicit DiskThreads(int threads);
  // Returns once everything has run.
  ~DiskThreads();

  DiskThreads(const DiskThreads&) = delete;
  DiskThreads& operator=(const DiskThreads&) = delete;

  // Calls `work` on one of the threads. Does not wait.
  void Run(std::function<void()> work);

 private:
  void Loop();

  absl::Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace causeway

#endif  // SERVER_EDGE_DISK_THREADS_H_
