// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/events/event_flags.h"

#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

absl::StatusOr<v1::WatchEventsRequest> Request(const EventFlags& flags) {
  return EventsRequest(flags, kNow, absl::UTCTimeZone());
}

TEST(EventFlagsTest, DetailsAreHiddenUnlessTheyAreAskedFor) {
  const auto severity = [](const EventFlags& flags) {
    const auto request = Request(flags);
    return request.ok() ? request->min_severity() : v1::SEVERITY_UNSPECIFIED;
  };
  EXPECT_EQ(severity({}), v1::NOTICE);
  EXPECT_EQ(severity({.all = true}), v1::DETAIL);
  EXPECT_EQ(severity({.kinds = {"round_merged"}}), v1::DETAIL);
  EXPECT_EQ(severity({.severity = "critical"}), v1::CRITICAL);
  EXPECT_EQ(severity({.severity = "warning", .kinds = {"validated"}}),
            v1::WARNING);
}

TEST(EventFlagsTest, EverythingGoesIntoTheRequest) {
  ASSERT_OK_AND_ASSIGN(const v1::WatchEventsRequest request,
                       Request({.after = 7,
                                .follow = true,
                                .kinds = {"island_left", "island_evicted"},
                                .since = "1h30m"}));
  EXPECT_EQ(request.after_id(), 7);
  EXPECT_FALSE(request.recorded_only());
  EXPECT_THAT(request.kinds(), ElementsAre("island_left", "island_evicted"));
  EXPECT_EQ(ToTime(request.since()), kNow - absl::Minutes(90));
  ASSERT_OK_AND_ASSIGN(const v1::WatchEventsRequest empty, Request({}));
  EXPECT_TRUE(empty.recorded_only());
  EXPECT_FALSE(empty.has_since());
}

TEST(EventFlagsTest, ATimeHasSeveralForms) {
  const absl::TimeZone zone = absl::FixedTimeZone(3600);
  const auto parse = [&](absl::string_view text) {
    return ParseSince(text, kNow, zone);
  };
  const auto civil = [&](int hour, int minute, int second) {
    return absl::FromCivil(
        absl::CivilSecond(2026, 11, 25, hour, minute, second), zone);
  };
  EXPECT_THAT(parse("90m"), IsOkAndHolds(kNow - absl::Minutes(90)));
  EXPECT_THAT(parse("1.5d"), IsOkAndHolds(kNow - absl::Hours(36)));
  EXPECT_THAT(parse("2026-11-25"), IsOkAndHolds(civil(0, 0, 0)));
  EXPECT_THAT(parse("2026-11-25 14:30"), IsOkAndHolds(civil(14, 30, 0)));
  // Events are shown with such times.
  EXPECT_THAT(parse("2026-11-25 14:30:59"), IsOkAndHolds(civil(14, 30, 59)));
  EXPECT_THAT(parse("2026-11-25T13:30:00Z"), IsOkAndHolds(civil(14, 30, 0)));
}

TEST(EventFlagsTest, ATimeBeforeTheYearOneIsInIt) {
  for (const char* since : {"inf", "1000000d", "0000-01-01"}) {
    ASSERT_OK_AND_ASSIGN(const v1::WatchEventsRequest request,
                         Request({.since = since}));
    EXPECT_EQ(absl::ToCivilYear(ToTime(request.since()), absl::UTCTimeZone()),
              absl::CivilYear(1))
        << since;
  }
}

TEST(EventFlagsTest, MistakesAreNamed) {
  for (const char* since : {"yesterday", "-2h", "d", "90", "2026-13-01"}) {
    EXPECT_THAT(Request({.since = since}),
                IsInvalidArgument("examples: 90m, 2h"))
        << since;
  }
  EXPECT_THAT(Request({.severity = "bad"}),
              IsInvalidArgument("detail, notice, warning or critical"));
  EXPECT_THAT(Request({.all = true, .severity = "notice"}),
              IsInvalidArgument("--all"));
}

}  // namespace
}  // namespace causeway
