// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/turnstile.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(TurnstileTest, OneIsInsideAtATime) {
  Turnstile turnstile;
  std::atomic<int> inside = 0;
  int passed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        const Turnstile::Turn turn(&turnstile);
        EXPECT_EQ(inside++, 0);
        ++passed;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 8 * 200);
}

TEST(TurnstileTest, TheNextWaitsForTheEndAndNoLonger) {
  Turnstile turnstile;
  Turnstile::Turn first(&turnstile);
  absl::Notification second_is_in;
  std::thread second([&] {
    const Turnstile::Turn turn(&turnstile);
    second_is_in.Notify();
  });
  EXPECT_FALSE(second_is_in.HasBeenNotified());
  first.End();
  second_is_in.WaitForNotification();
  second.join();
  // Ending a turn twice lets no other caller in.
  first.End();
  Turnstile::Turn third(&turnstile);
}

}  // namespace
}  // namespace causeway
