// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/event_limiter.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Time kBegin = absl::UnixEpoch();

TEST(EventLimiterTest, OneEventCountsTheEventsLeftOut) {
  EventLimiter limiter;
  size_t recorded = 0;
  for (int i = 0; i < 1000; ++i) {
    recorded += limiter.Limit({{"rank_slow", "east", "slow"}}, kBegin).size();
  }
  EXPECT_EQ(recorded, EventLimiter::kMost);
  const absl::Time end = kBegin + EventLimiter::kWindow;
  EXPECT_THAT(limiter.Limit({}, end - absl::Seconds(1)), IsEmpty());
  const auto events = limiter.Limit({{"rank_slow", "east", "slow"}}, end);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, "events_left_out");
  EXPECT_EQ(events[0].island_id, "east");
  EXPECT_THAT(events[0].text, HasSubstr("940 more events rank_slow"));
  EXPECT_EQ(events[1].text, "slow") << "a new window has begun";
  EXPECT_THAT(limiter.Limit({}, end + EventLimiter::kWindow), IsEmpty());
}

TEST(EventLimiterTest, MoreEventsDoNotExtendTheWindow) {
  EventLimiter limiter;
  const absl::Duration step = EventLimiter::kWindow / 100;
  for (int i = 0; i < 100; ++i) {
    limiter.Limit({{"rank_slow", "east", "slow"}}, kBegin + i * step);
  }
  EXPECT_THAT(limiter.Limit({}, kBegin + EventLimiter::kWindow), SizeIs(1));
}

TEST(EventLimiterTest, IslandsAndKindsAreCountedApart) {
  EventLimiter limiter;
  for (uint64_t i = 0; i <= EventLimiter::kMost; ++i) {
    limiter.Limit({{"rank_slow", "east", ""}}, kBegin);
  }
  EXPECT_THAT(limiter.Limit({{"rank_slow", "east", ""},
                             {"rank_slow", "west", ""},
                             {"island_evicted", "east", ""},
                             {"round_merged", "", ""}},
                            kBegin),
              SizeIs(3));
}

TEST(EventLimiterTest, EventsOfTheRunAreAllRecorded) {
  EventLimiter limiter;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THAT(limiter.Limit({{"round_merged", "", ""}}, kBegin), SizeIs(1));
  }
}

}  // namespace
}  // namespace causeway
