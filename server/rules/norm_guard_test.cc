// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/norm_guard.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A guard after rounds of one contribution each, of windows of `steps`.
NormGuard After(double factor, size_t rounds, double norm = 1,
                uint64_t steps = 10) {
  NormGuard guard(factor, /*max_islands=*/64);
  for (size_t i = 0; i < rounds; ++i) guard.Merged({{norm, steps}}, /*live=*/1);
  return guard;
}

TEST(NormGuard, LetsFiniteNormsPassUntilItKnowsWhatIsUsual) {
  NormGuard guard = After(2, NormGuard::kLeast - 1);
  EXPECT_THAT(guard.Objection({1e30, 10}), IsEmpty());
  guard.Merged({{1, 10}}, 1);
  EXPECT_THAT(guard.Objection({2, 10}), IsEmpty());
  EXPECT_THAT(guard.Objection({2.1, 10}),
              HasSubstr("2.1, is more than 2 times"));
  EXPECT_THAT(guard.Objection({0, 10}), IsEmpty());
}

TEST(NormGuard, IsNotMovedByAFewOutliers) {
  NormGuard guard = After(10, 6);
  for (int i = 0; i < 4; ++i) guard.Merged({{1e6, 10}}, 1);
  EXPECT_THAT(guard.Objection({11, 10}),
              HasSubstr("median of the last 10 merged"));
}

TEST(NormGuard, FollowsTheRun) {
  NormGuard guard = After(10, 100, /*norm=*/100);
  for (size_t i = 0; i < NormGuard::kLately; ++i) guard.Merged({{1, 10}}, 1);
  EXPECT_THAT(guard.Objection({50, 10}), HasSubstr("last 16 merged, 1"));
}

TEST(NormGuard, AllowsForLongWindows) {
  const NormGuard guard = After(10, NormGuard::kLeast, 1, /*steps=*/100);
  EXPECT_THAT(guard.Objection({25, 300}), IsEmpty());
  EXPECT_THAT(guard.Objection({31, 300}),
              HasSubstr("a window of 3.0 times the length"));
  EXPECT_THAT(guard.Objection({11, 50}), HasSubstr("more than 10 times"));
}

// The last 16 of a round are the small ones of a minority. What is usual for
// the others must not be an outlier because of that.
TEST(NormGuard, KnowsAWholeRound) {
  NormGuard guard(10, /*max_islands=*/64);
  NormGuard::MergedRound round(24, {30, 10});
  round.insert(round.end(), 16, {1, 10});
  for (int i = 0; i < 3; ++i) guard.Merged(round, /*live=*/40);
  EXPECT_THAT(guard.Objection({30, 10}), IsEmpty());
  EXPECT_THAT(guard.Objection({301, 10}),
              HasSubstr("median of the last 40 merged, 30"));
}

TEST(NormGuard, KnowsAsManyContributionsAsThereAreIslands) {
  // Rounds of one contribution each; those of the slow ones come together.
  NormGuard guard = After(10, 24, /*norm=*/30);
  for (int i = 0; i < 16; ++i) guard.Merged({{1, 10}}, /*live=*/40);
  EXPECT_THAT(guard.Objection({30, 10}), IsEmpty());
  EXPECT_THAT(guard.Objection({301, 10}),
              HasSubstr("median of the last 40 merged, 30"));
  // Some have left: it need not look back as far.
  guard.Merged({{1, 10}}, /*live=*/2);
  EXPECT_THAT(guard.Objection({30, 10}), HasSubstr("last 16 merged, 1"));
}

TEST(NormGuard, WhatItJudgesByIsInItsMemory) {
  constexpr uint64_t kIslands = 20;
  NormGuard guard(10, kIslands);
  std::vector<NormGuard::MergedRound> rounds;
  for (uint64_t i = 0; i < 50; ++i) {
    const double norm = static_cast<double>(i);
    rounds.emplace_back(1 + i * 7 % kIslands, NormGuard::Sample{norm, 10});
    const uint64_t live = 1 + i * 3 % kIslands;
    guard.Merged(rounds.back(), live);
    // One that begins with the newest rounds that have as many as that.
    size_t first = rounds.size();
    for (size_t size = 0; first > 0 && size < NormGuard::Memory(kIslands);) {
      size += rounds[--first].size();
    }
    NormGuard restarted(10, kIslands);
    for (; first < rounds.size(); ++first) {
      restarted.Merged(rounds[first], live);
    }
    EXPECT_EQ(restarted.Objection({1e9, 10}), guard.Objection({1e9, 10})) << i;
  }
}

TEST(NormGuard, NeverLetsPassWhatIsNotFinite) {
  const NormGuard guard(0, 64);
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::max(), 10}),
              IsEmpty());
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::infinity(), 10}),
              HasSubstr("not finite"));
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::quiet_NaN(), 10}),
              HasSubstr("not finite"));
}

}  // namespace
}  // namespace causeway
