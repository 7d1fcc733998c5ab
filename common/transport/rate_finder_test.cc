// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/rate_finder.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr uint64_t kMegabyte = 1'000'000;

// Transfers a megabyte over a link that carries `rate`. Returns the pace.
double TransferOver(RateFinder& finder, double rate) {
  const double pace = finder.Next();
  if (pace == 0) {
    finder.Measured(kMegabyte,
                    absl::Seconds(static_cast<double>(kMegabyte) / rate));
  }
  return pace;
}

TEST(RateFinderTest, MeasuresAFewTimesThenLeavesHeadRoom) {
  RateFinder finder;
  // The first transfer is slow, as with TCP.
  EXPECT_EQ(TransferOver(finder, 1e6), 0);
  EXPECT_EQ(TransferOver(finder, 4e6), 0);
  EXPECT_EQ(TransferOver(finder, 5e6), 0);
  EXPECT_NEAR(TransferOver(finder, 5e6), RateFinder::kShare * 5e6, 1);
}

TEST(RateFinderTest, FollowsTheLinkUpAndDown) {
  RateFinder finder;
  double pace = 0;
  const auto paced_after = [&](double rate, size_t measurements) {
    for (size_t i = 0; i < measurements * RateFinder::kMeasureEvery; ++i) {
      if (const double next = TransferOver(finder, rate); next > 0) pace = next;
    }
    return pace;
  };
  EXPECT_NEAR(paced_after(5e6, 1), RateFinder::kShare * 5e6, 1);
  // A single measurement shows that the link is faster; only kKept measurements
  // show that it is slower.
  EXPECT_NEAR(paced_after(8e6, 2), RateFinder::kShare * 8e6, 1);
  EXPECT_NEAR(paced_after(2e6, 1), RateFinder::kShare * 8e6, 1);
  EXPECT_NEAR(paced_after(2e6, RateFinder::kKept), RateFinder::kShare * 2e6, 1);
}

// Its own pace must not lower the measured rate.
TEST(RateFinderTest, DoesNotCreepDown) {
  RateFinder finder;
  for (int i = 0; i < 1000; ++i) {
    const double pace = TransferOver(finder, 5e6);
    EXPECT_TRUE(pace == 0 || pace > 0.89 * 5e6) << i << ": " << pace;
  }
}

TEST(RateFinderTest, IsBounded) {
  RateFinder finder;
  for (size_t i = 0; i < RateFinder::kKept; ++i) {
    finder.Measured(RateFinder::kLeastBytes, absl::Hours(1));
  }
  EXPECT_NEAR(finder.Next(), RateFinder::kShare * RateFinder::kSlowest, 1e-6);
  finder.Measured(1ull << 50, absl::Nanoseconds(1));
  EXPECT_NEAR(finder.Next(), RateFinder::kShare * RateFinder::kFastest, 1);
}

TEST(RateFinderTest, WhatSaysLittleIsLeftOut) {
  RateFinder finder;
  for (size_t i = 0; i < RateFinder::kKept; ++i) {
    finder.Measured(RateFinder::kLeastBytes - 1, absl::Seconds(1));
    finder.Measured(kMegabyte, absl::ZeroDuration());
    finder.Measured(kMegabyte, -absl::Seconds(1));
  }
  EXPECT_EQ(finder.Next(), 0);
}

}  // namespace
}  // namespace causeway
