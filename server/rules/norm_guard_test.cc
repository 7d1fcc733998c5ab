// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/norm_guard.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Returns a guard after rounds of one contribution with `steps` inner steps.
NormGuard After(double factor, size_t rounds, double norm = 1,
                uint64_t steps = 10) {
  NormGuard guard(factor, /*max_islands=*/64, /*first_usual=*/5);
  for (size_t i = 0; i < rounds; ++i) guard.Merged({{norm, steps}}, /*live=*/1);
  return guard;
}

TEST(NormGuard, ComparesTheFirstOnesWithTheParameters) {
  NormGuard guard = After(2, NormGuard::kLeast - 1);
  EXPECT_THAT(guard.Objection({10, 10}, 1), IsEmpty());
  EXPECT_THAT(
      guard.Objection({10.1, 10}, 1),
      HasSubstr("10.1, is more than 2 times that of the parameters, 5"));
  EXPECT_THAT(guard.Objection({1e30, UINT64_MAX}, 100), Not(IsEmpty()));
  guard.Merged({{1, 10}}, 1);
  EXPECT_THAT(guard.Objection({2, 10}, 1), IsEmpty());
  EXPECT_THAT(guard.Objection({2.1, 10}, 1),
              HasSubstr("2.1, is more than 2 times the median"));
  EXPECT_THAT(guard.Objection({0, 10}, 1), IsEmpty());
}

TEST(NormGuard, ContributionsWithoutChangeShowNothing) {
  NormGuard guard = After(2, NormGuard::kLeast, /*norm=*/3);
  // An island with nothing to train does not make others outliers.
  for (size_t i = 0; i < NormGuard::kLately - NormGuard::kLeast; ++i) {
    guard.Merged({{0, 10}}, 1);
  }
  EXPECT_THAT(guard.Objection({6, 10}, 1), IsEmpty());
  EXPECT_THAT(guard.Objection({6.1, 10}, 1),
              HasSubstr("median of the last 4 merged, 3"));
  guard.Merged({{0, 10}}, 1);
  EXPECT_THAT(guard.Objection({10, 10}, 1), IsEmpty());
  EXPECT_THAT(guard.Objection({10.1, 10}, 1),
              HasSubstr("only 3 contributions were merged"));
}

TEST(NormGuard, IsNotMovedByAFewOutliers) {
  NormGuard guard = After(10, 6);
  for (int i = 0; i < 4; ++i) guard.Merged({{1e6, 10}}, 1);
  EXPECT_THAT(guard.Objection({11, 10}, 1),
              HasSubstr("median of the last 10 merged"));
}

TEST(NormGuard, FollowsTheRun) {
  NormGuard guard = After(10, 100, /*norm=*/100);
  for (size_t i = 0; i < NormGuard::kLately; ++i) guard.Merged({{1, 10}}, 1);
  EXPECT_THAT(guard.Objection({50, 10}, 1), HasSubstr("last 16 merged, 1"));
}

TEST(NormGuard, AllowsForLongWindows) {
  const NormGuard guard = After(10, NormGuard::kLeast, 1, /*steps=*/100);
  EXPECT_THAT(guard.Objection({25, 300}, 3), IsEmpty());
  EXPECT_THAT(guard.Objection({31, 300}, 5),
              HasSubstr("a window of 3.0 times the length"));
  EXPECT_THAT(guard.Objection({11, 50}, 5), HasSubstr("more than 10 times"));
}

// The island says how many steps it has trained; the coordinator knows how many
// rounds it has missed.
TEST(NormGuard, AClaimOfStepsCountsUpToTheRoundsThatHavePassed) {
  const NormGuard guard = After(10, NormGuard::kLeast, 1, /*steps=*/100);
  EXPECT_THAT(guard.Objection({20, 1000}, 2), IsEmpty());
  EXPECT_THAT(guard.Objection({21, 1000}, 2),
              HasSubstr("a window of 2.0 times the length"));
  EXPECT_THAT(guard.Objection({11, UINT64_MAX}, 1), Not(IsEmpty()));
  EXPECT_THAT(guard.Objection({160, UINT64_MAX}, 1000), IsEmpty());
  EXPECT_THAT(guard.Objection({161, UINT64_MAX}, 1000), Not(IsEmpty()));
}

TEST(NormGuard, KnowsWhenItNeedsNoParameters) {
  using Round = NormGuard::MergedRound;
  const Round changes_nothing(NormGuard::kLately, {0, 10});
  const Round too_few(NormGuard::kLeast - 1, {1, 10});
  const Round one(1, {1, 10});
  for (const auto& [rounds, want] :
       {std::pair(std::vector<Round>{}, false),
        {{too_few}, false},
        {{too_few, one}, true},
        {{one, too_few}, true},
        {{one, too_few, changes_nothing}, false}}) {
    EXPECT_EQ(NormGuard::ShowUsual(rounds), want);
    NormGuard guard(2, NormGuard::kLately, /*first_usual=*/0);
    for (const Round& round : rounds) guard.Merged(round, /*live=*/1);
    EXPECT_EQ(guard.Objection({1, 10}, 1).empty(), want);
  }
}

// The last 16 contributions of a round are the small ones of a minority. They
// must not make the others' usual norms look like outliers.
TEST(NormGuard, KnowsAWholeRound) {
  NormGuard guard(10, /*max_islands=*/64, /*first_usual=*/5);
  NormGuard::MergedRound round(24, {30, 10});
  round.insert(round.end(), 16, {1, 10});
  for (int i = 0; i < 3; ++i) guard.Merged(round, /*live=*/40);
  EXPECT_THAT(guard.Objection({30, 10}, 1), IsEmpty());
  EXPECT_THAT(guard.Objection({301, 10}, 1),
              HasSubstr("median of the last 40 merged, 30"));
}

TEST(NormGuard, KnowsAsManyContributionsAsThereAreIslands) {
  // Each round has one contribution; those of the slow islands come together.
  NormGuard guard = After(10, 24, /*norm=*/30);
  for (int i = 0; i < 16; ++i) guard.Merged({{1, 10}}, /*live=*/40);
  EXPECT_THAT(guard.Objection({30, 10}, 1), IsEmpty());
  EXPECT_THAT(guard.Objection({301, 10}, 1),
              HasSubstr("median of the last 40 merged, 30"));
  // Some islands have left, so the guard need not look back as far.
  guard.Merged({{1, 10}}, /*live=*/2);
  EXPECT_THAT(guard.Objection({30, 10}, 1), HasSubstr("last 16 merged, 1"));
}

TEST(NormGuard, JudgesByItsMemoryAlone) {
  constexpr uint64_t kIslands = 20;
  NormGuard guard(10, kIslands, /*first_usual=*/5);
  std::vector<NormGuard::MergedRound> rounds;
  for (uint64_t i = 0; i < 50; ++i) {
    const double norm = static_cast<double>(i);
    rounds.emplace_back(1 + i * 7 % kIslands, NormGuard::Sample{norm, 10});
    const uint64_t live = 1 + i * 3 % kIslands;
    guard.Merged(rounds.back(), live);
    // A restarted guard knows only the newest rounds with that many
    // contributions.
    size_t first = rounds.size();
    for (size_t size = 0; first > 0 && size < NormGuard::Memory(kIslands);) {
      size += rounds[--first].size();
    }
    NormGuard restarted(10, kIslands, /*first_usual=*/5);
    for (; first < rounds.size(); ++first) {
      restarted.Merged(rounds[first], live);
    }
    EXPECT_EQ(restarted.Objection({1e9, 10}, 1), guard.Objection({1e9, 10}, 1))
        << i;
  }
}

// Returns two parts with these norms.
RankParts Parts(double first, double second) {
  return {.ranks = 2,
          .runs = {{0, 0, 1, first * first}, {1, 1, 1, second * second}}};
}

TEST(NormGuard, NamesTheRankWhoseValuesAreTooLarge) {
  for (const size_t rounds : {NormGuard::kLeast - 1, NormGuard::kLeast}) {
    NormGuard guard = After(10, rounds);
    guard.Passed(Parts(0.6, 0.8));
    EXPECT_THAT(
        guard.Objection({70, 10}, 1, Parts(0.6, 70)),
        EndsWith("; without the values of rank 1 (of 2) it would pass: look at "
                 "that rank's memory and processor"));
    EXPECT_THAT(guard.Objection({70, 10}, 1), Not(HasSubstr("rank")));
    EXPECT_THAT(guard.Objection({0.6, 10}, 1, Parts(0.6, 0)), IsEmpty());
  }
}

// The others' values must be nearer to the usual norm than to ten times it.
TEST(NormGuard, NamesNoRankIfTheOtherValuesAreUnusual) {
  NormGuard guard = After(10, NormGuard::kLeast);
  guard.Passed(Parts(1, 1));
  EXPECT_THAT(guard.Objection({70, 10}, 1, Parts(2.2, 70)),
              HasSubstr("rank 1 (of 2)"));
  EXPECT_THAT(guard.Objection({70, 10}, 1, Parts(2.3, 70)),
              HasSubstr("not clear"));
  // In a window of three times the length they may be longer.
  EXPECT_THAT(guard.Objection({70, 30}, 3, Parts(2.3, 70)),
              HasSubstr("rank 1 (of 2)"));
  EXPECT_THAT(guard.Objection({70, 30}, 3, Parts(6.8, 70)),
              HasSubstr("not clear"));
}

TEST(NormGuard, NamesTheRankWhoseValuesAreNotFinite) {
  for (const double factor : {0., 10.}) {
    const NormGuard guard(factor, 64, /*first_usual=*/5);
    EXPECT_THAT(guard.Objection({NAN, 10}, 1, Parts(NAN, 3)),
                StartsWith("a value of it is not finite; without the values of "
                           "rank 0 (of 2) it would pass"));
    EXPECT_THAT(guard.Objection({NAN, 10}, 1, Parts(NAN, NAN)),
                EndsWith("not finite; no single rank's part explains that"));
  }
}

TEST(NormGuard, NeverPassesValuesThatAreNotFinite) {
  const NormGuard guard(0, 64, /*first_usual=*/5);
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::max(), 10}, 1),
              IsEmpty());
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::infinity(), 10}, 1),
              HasSubstr("not finite"));
  EXPECT_THAT(
      guard.Objection({std::numeric_limits<double>::quiet_NaN(), 10}, 1),
      HasSubstr("not finite"));
}

}  // namespace
}  // namespace causeway
