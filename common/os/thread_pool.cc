// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/thread_pool.h"

#include <algorithm>

#include "glog/logging.h"

namespace causeway {
namespace {

// Loops follow one another within microseconds, and waking a sleeping thread
// costs tens of them; so a waiter first spins for about that long, but no
// longer, because another process may need the core.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Returns once `value` differs from `old`.
template <typename T>
void AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  CHECK_GE(threads, 1);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(int)> body) {
  CHECK(body_ == nullptr) << "ThreadPool::Run called within another Run";
  body_ = &body;
  pending_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(0);
  for (int left; (left = pending_.load(std::memory_order_acquire)) != 0;) {
    AwaitChange(pending_, left);
  }
  body_ = nullptr;
}

void ThreadPool::WorkerLoop(int worker) {
  for (uint32_t seen = 0;; ++seen) {
    AwaitChange(generation_, seen);
    if (stopping_) return;
    (*body_)(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pending_.notify_one();
    }
  }
}

Slice SliceOf(int64_t total, int parts, int part, int64_t granularity) {
  const int64_t units = (total + granularity - 1) / granularity;
  const int64_t begin = units * part / parts * granularity;
  const int64_t end = units * (part + 1) / parts * granularity;
  return {.begin = std::min(begin, total), .end = std::min(end, total)};
}

}  // namespace causeway
