// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/event_filter.h"

#include <cstdint>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(EventFilterTest, MergesMatterLeastAndASuspendedRunMost) {
  EXPECT_EQ(SeverityOf("round_merged"), v1::DETAIL);
  EXPECT_EQ(SeverityOf("island_joined"), v1::NOTICE);
  EXPECT_EQ(SeverityOf("enrolment_refused"), v1::WARNING);
  EXPECT_EQ(SeverityOf("run_suspended"), v1::CRITICAL);
  EXPECT_EQ(SeverityOf("of_a_later_version"), v1::NOTICE);
}

TEST(EventFilterTest, AnEmptyRequestWantsEverything) {
  ASSERT_OK_AND_ASSIGN(const EventFilter filter, FilterOf({}));
  EXPECT_TRUE(filter.Wants("round_merged", absl::FromUnixSeconds(-1)));
  EXPECT_TRUE(filter.Wants("of_a_later_version", absl::UnixEpoch()));
}

TEST(EventFilterTest, AllConditionsHold) {
  v1::WatchEventsRequest request;
  request.add_kinds("island_evicted");
  request.add_kinds("round_merged");
  request.set_min_severity(v1::NOTICE);
  request.mutable_since()->set_seconds(100);
  request.mutable_since()->set_nanos(5);
  ASSERT_OK_AND_ASSIGN(const EventFilter filter, FilterOf(request));
  const absl::Time time = absl::FromUnixSeconds(100) + absl::Nanoseconds(5);
  EXPECT_TRUE(filter.Wants("island_evicted", time));
  EXPECT_FALSE(filter.Wants("island_evicted", time - absl::Nanoseconds(1)));
  EXPECT_FALSE(filter.Wants("round_merged", time));
  EXPECT_FALSE(filter.Wants("island_joined", time));
}

TEST(EventFilterTest, AnUnknownKindIsNamedWithTheKnownOnes) {
  v1::WatchEventsRequest request;
  request.add_kinds("island_evict");
  EXPECT_THAT(
      FilterOf(request),
      IsInvalidArgument("\"island_evict\"", "island_draining, island_evicted"));
}

TEST(EventFilterTest, AnyTimeOfAPeerWillDo) {
  v1::WatchEventsRequest request;
  for (const int64_t seconds : {INT64_MIN, INT64_MAX}) {
    request.mutable_since()->set_seconds(seconds);
    request.mutable_since()->set_nanos(INT32_MAX);
    ASSERT_OK_AND_ASSIGN(const EventFilter filter, FilterOf(request));
    EXPECT_EQ(filter.Wants("validated", absl::UnixEpoch()), seconds < 0);
  }
}

}  // namespace
}  // namespace causeway
