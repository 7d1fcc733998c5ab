// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/time_limit.h"

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(TimeLimitTest, TheTimeThatAProcessRunsCounts) {
  absl::Time time = absl::UnixEpoch();
  const Clock now = [&] { return time; };
  TimeLimit limit(absl::Seconds(3), &now);
  for (const int left : {2, 1, 0}) {
    EXPECT_FALSE(limit.IsOver());
    EXPECT_EQ(limit.Slice(), TimeLimit::kSlice);
    time += TimeLimit::kSlice;
    EXPECT_EQ(limit.Left(), absl::Seconds(left));
  }
  EXPECT_TRUE(limit.IsOver());
  time += absl::Hours(1);
  EXPECT_EQ(limit.Slice(), absl::ZeroDuration());
}

TEST(TimeLimitTest, AStopTakesLittle) {
  absl::Time time = absl::UnixEpoch();
  const Clock now = [&] { return time; };
  TimeLimit limit(absl::Minutes(1), &now);
  time += absl::Hours(1);
  EXPECT_EQ(limit.Left(), absl::Minutes(1) - TimeLimit::kMostCounted);
}

TEST(TimeLimitTest, AnInfiniteLimitIsNeverOver) {
  absl::Time time = absl::UnixEpoch();
  const Clock now = [&] { return time; };
  TimeLimit limit(absl::InfiniteDuration(), &now);
  time += absl::Hours(1);
  EXPECT_EQ(limit.Left(), absl::InfiniteDuration());
  EXPECT_EQ(limit.Slice(), TimeLimit::kSlice);
}

TEST(TimeLimitTest, AConditionIsAwaitedAfterAStop) {
  // Each reading comes an hour after the one before it.
  absl::Time time = absl::UnixEpoch();
  const Clock now = [&] { return time += absl::Hours(1); };
  absl::Mutex mu;
  absl::MutexLock lock(&mu);
  int looks = 0;
  const auto is_there = [&] { return ++looks > 3; };
  TimeLimit enough(absl::Minutes(1), &now);
  EXPECT_TRUE(AwaitWithin(enough, absl::Condition(&is_there), mu));
  const auto never = [] { return false; };
  TimeLimit little(TimeLimit::kMostCounted, &now);
  EXPECT_FALSE(AwaitWithin(little, absl::Condition(&never), mu));
}

}  // namespace
}  // namespace causeway
