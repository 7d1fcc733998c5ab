// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(WatchTest, SilenceCountsFromTheLastAnswer) {
  absl::Time now = absl::UnixEpoch();
  int updates = 0;
  std::ostringstream out;
  Watch(
      [&](WatchedRun&) {
        return ++updates < 3 ? absl::OkStatus()
                             : absl::UnavailableError("gone");
      },
      absl::Seconds(20),
      {.now = [&] { return now; },
       .time_zone = absl::UTCTimeZone(),
       .out = out,
       .sleep =
           [&](absl::Duration interval) {
             now += interval;
             return updates < 3;
           }});
  EXPECT_THAT(out.str(), HasSubstr("no answer for 20 s: gone"));
}

}  // namespace
}  // namespace causeway
