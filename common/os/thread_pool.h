// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A fixed team of threads for data-parallel loops of ten microseconds and up.
//
//   ThreadPool pool(2);
//   pool.Run([&](int worker) {
//     const Slice rows = SliceOf(row_count, pool.threads(), worker);
//     for (int64_t row = rows.begin; row < rows.end; ++row) ...
//   });
//
// There is no queue and no stealing: a worker's number alone decides what it
// does, so results that depend on the partition are the same in every run with
// the same number of threads.
#ifndef COMMON_OS_THREAD_POOL_H_
#define COMMON_OS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace causeway {

class ThreadPool {
 public:
  // Makes a team of `threads` (at least 1), including the thread that calls
  // Run: starts threads - 1 threads that live until destruction.
  explicit ThreadPool(int threads);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(worker) once for each worker in [0, threads), concurrently, and
  // returns when all calls have; the calling thread is worker 0. Their writes
  // are then visible to the caller. Concurrent and nested calls of Run are not
  // allowed. `body` must not throw.
  void Run(absl::FunctionRef<void(int worker)> body);

 private:
  void WorkerLoop(int worker);

  const int threads_;
  std::vector<std::thread> workers_;

  // Rises by one with each Run and at the end; workers wait for it to change.
  // body_ and stopping_ are written before it rises and read after.
  alignas(64) std::atomic<uint32_t> generation_{0};
  const absl::FunctionRef<void(int)>* body_ = nullptr;
  bool stopping_ = false;
  // The number of workers that have not finished the current generation.
  alignas(64) std::atomic<int> pending_{0};
};

// A half-open range of indices.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Returns part `part` of [0, total) cut into `parts` consecutive, nearly equal
// slices; each begins at a multiple of `granularity` and ends at one or at
// `total`. Slices may be empty.
Slice SliceOf(int64_t total, int parts, int part, int64_t granularity = 1);

}  // namespace causeway

#endif  // COMMON_OS_THREAD_POOL_H_
