// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/pacer.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(PacerTest, WithoutARateEverythingGoesAtOnce) {
  Pacer pacer;
  EXPECT_EQ(pacer.Take(kStart, uint64_t{1} << 40), kStart);
  EXPECT_EQ(pacer.Take(kStart, 1), kStart);
  EXPECT_EQ(PacedChunkBytes(0), kMaxChunkBytes);
}

TEST(PacerTest, ABusySenderKeepsToTheRate) {
  Pacer pacer;
  pacer.SetRate(1e6);
  absl::Time when = kStart;
  // Each sender waits for its turn and asks again at once.
  for (int i = 0; i < 1000; ++i) when = pacer.Take(when, 10'000);
  // 10 s of data: the last chunk has yet to go, and the first two went ahead
  // (20 ms).
  EXPECT_EQ(when - kStart, absl::Milliseconds(9990 - 20));
}

TEST(PacerTest, StreamsShareTheRateInTheOrderOfTheirCalls) {
  Pacer pacer;
  pacer.SetRate(1e6);
  EXPECT_EQ(pacer.Take(kStart, 20'000), kStart);
  EXPECT_EQ(pacer.Take(kStart, 30'000), kStart);
  EXPECT_EQ(pacer.Take(kStart, 5'000), kStart + absl::Milliseconds(30));
  EXPECT_EQ(pacer.Take(kStart, 5'000), kStart + absl::Milliseconds(35));
}

TEST(PacerTest, APauseSavesNoMoreThanABurst) {
  Pacer pacer;
  pacer.SetRate(1e6);
  pacer.Take(kStart, 1'000'000);
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_EQ(pacer.Take(later, 20'000), later);
  EXPECT_EQ(pacer.Take(later, 20'000), later);
  EXPECT_EQ(pacer.Take(later, 20'000), later + absl::Milliseconds(20));
}

TEST(PacerTest, ANewRateHoldsForWhatComesNext) {
  Pacer pacer;
  pacer.SetRate(1e6);
  pacer.Take(kStart, 120'000);
  pacer.SetRate(2e6);
  EXPECT_EQ(pacer.Take(kStart, 200'000), kStart + absl::Milliseconds(100));
  EXPECT_EQ(pacer.Take(kStart, 1), kStart + absl::Milliseconds(200));
}

TEST(PacerTest, ChunksOfSlowLinksAreSmall) {
  EXPECT_EQ(PacedChunkBytes(1e4), 16u << 10);
  EXPECT_EQ(PacedChunkBytes(1e7), 200'000u);
  EXPECT_EQ(PacedChunkBytes(1e12), kMaxChunkBytes);
}

}  // namespace
}  // namespace causeway
