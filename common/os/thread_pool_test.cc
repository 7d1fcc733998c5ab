// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/thread_pool.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(ThreadPoolTest, EveryWorkerRunsOncePerRunAndItsWritesAreVisible) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    // The ints are plain, so that tsan reports a missing happens-before as a
    // race.
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int run = 1; run <= 1000; ++run) {
      pool.Run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
      ASSERT_THAT(calls, testing::Each(run));
    }
  }
}

TEST(ThreadPoolTest, TheCallerIsWorkerZero) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  pool.Run([&](int worker) {
    ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[0]);
  EXPECT_NE(ids[2], ids[1]);
}

TEST(ThreadPoolTest, WorkersRunConcurrently) {
  ThreadPool pool(3);
  std::atomic<int> arrived{0};
  // This ends only if all three workers are inside at the same time.
  pool.Run([&](int) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

TEST(ThreadPoolDeathTest, NestedRunIsABug) {
  ThreadPool pool(1);
  EXPECT_DEATH(pool.Run([&](int) { pool.Run([](int) {}); }), "within another");
}

TEST(SliceOfTest, SlicesCoverTheRangeInOrderAndAreBalanced) {
  for (const int64_t granularity : {1, 4, 16}) {
    for (int64_t total = 0; total < 70; ++total) {
      for (int parts = 1; parts < 9; ++parts) {
        int64_t end = 0;
        for (int part = 0; part < parts; ++part) {
          const Slice slice = SliceOf(total, parts, part, granularity);
          ASSERT_EQ(slice.begin, end);
          ASSERT_GE(slice.size(), 0);
          ASSERT_LE(slice.size(), total / parts + 2 * granularity);
          if (slice.end != total) {
            ASSERT_EQ(slice.end % granularity, 0);
          }
          end = slice.end;
        }
        ASSERT_EQ(end, total);
      }
    }
  }
}

}  // namespace
}  // namespace causeway
