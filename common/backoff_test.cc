// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/backoff.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(BackoffTest, GrowsToItsCapWithinTheJitter) {
  Backoff backoff(
      {.first = absl::Seconds(1), .longest = absl::Seconds(10), .factor = 2},
      1);
  for (const double step : {1., 2., 4., 8., 10., 10., 10.}) {
    const double pause = absl::ToDoubleSeconds(backoff.Next());
    EXPECT_GE(pause, step / 2);
    EXPECT_LE(pause, step);
  }
}

TEST(BackoffTest, ResetStartsOver) {
  Backoff backoff({.first = absl::Seconds(1)}, 1);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Seconds(1));
}

TEST(BackoffTest, SeedsSpreadTheRetries) {
  Backoff a({}, 1);
  Backoff b({}, 2);
  EXPECT_NE(a.Next(), b.Next());
}

}  // namespace
}  // namespace causeway
