// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/progress.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

TEST(StripProgressTest, CountsWholeStripsWithoutAGap) {
  StripProgress progress(2 * kStripValues + 100);
  EXPECT_EQ(progress.leading_strips(), 0u);
  progress.Add(kStripValues, kStripValues);
  progress.Add(0, kStripValues - 256);
  EXPECT_EQ(progress.leading_strips(), 0u);
  progress.Add(kStripValues - 256, 256);
  EXPECT_EQ(progress.leading_strips(), 2u);
  EXPECT_FALSE(progress.finished());
  progress.Add(2 * kStripValues, 100);
  EXPECT_EQ(progress.leading_strips(), 3u);
  EXPECT_TRUE(progress.finished());
}

TEST(StripProgressTest, APieceMaySpanStrips) {
  StripProgress progress(3 * kStripValues);
  progress.Add(256, 3 * kStripValues - 256);
  EXPECT_EQ(progress.leading_strips(), 0u);
  progress.Add(0, 256);
  EXPECT_TRUE(progress.finished());
}

TEST(StripProgressTest, AnEmptyVectorIsFinished) {
  EXPECT_TRUE(StripProgress(0).finished());
}

TEST(StripProgressDeathTest, ValuesThatComeTwiceAreABug) {
  StripProgress progress(1000);
  progress.Add(0, 512);
  EXPECT_DEATH(progress.Add(256, 744), "came twice");
}

TEST(StripProgressTest, NoStripIsForgottenWhenThreadsFinishTogether) {
  constexpr uint64_t kStrips = 2000;
  constexpr uint64_t kThreads = 4;
  StripProgress progress(kStrips * kStripValues);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&progress, thread] {
      for (uint64_t strip = thread; strip < kStrips; strip += kThreads) {
        progress.Add(strip * kStripValues, 256);
        progress.Add(strip * kStripValues + 256, kStripValues - 256);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(progress.finished());
}

}  // namespace
}  // namespace causeway
