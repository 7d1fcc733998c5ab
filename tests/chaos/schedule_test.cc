// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <set>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr ScheduleOptions kOptions = {.duration = absl::Minutes(10),
                                      .interval = absl::Seconds(15),
                                      .islands = 4,
                                      .seed = 7};

TEST(ScheduleTest, ComesFromItsSeed) {
  EXPECT_EQ(MakeSchedule(kOptions), MakeSchedule(kOptions));
  ScheduleOptions other = kOptions;
  other.seed = 8;
  EXPECT_NE(MakeSchedule(kOptions), MakeSchedule(other));
}

TEST(ScheduleTest, HasAFaultInEveryIntervalButTheLast) {
  const std::vector<Fault> faults = MakeSchedule(kOptions);
  ASSERT_EQ(faults.size(), 39);
  for (size_t i = 0; i < faults.size(); ++i) {
    EXPECT_EQ(faults[i].at, (static_cast<double>(i) + 0.5) * kOptions.interval);
    EXPECT_GE(faults[i].lasts, 0.19 * kOptions.interval);
    EXPECT_LE(faults[i].lasts,
              (faults[i].kind == FaultKind::kGuest ? 0.81 : 0.41) *
                  kOptions.interval);
    EXPECT_GE(faults[i].island, 0);
    EXPECT_LT(faults[i].island, kOptions.islands);
  }
}

TEST(ScheduleTest, DealsEveryKindBeforeOneComesAgain) {
  const std::vector<Fault> faults = MakeSchedule(kOptions);
  for (size_t begin = 0; begin + kFaultKinds <= faults.size();
       begin += kFaultKinds) {
    std::set<FaultKind> kinds;
    for (size_t i = begin; i < begin + kFaultKinds; ++i) {
      kinds.insert(faults[i].kind);
    }
    EXPECT_EQ(kinds.size(), kFaultKinds);
  }
}

TEST(ScheduleTest, IsEmptyWithoutTimeForAFault) {
  ScheduleOptions brief = kOptions;
  brief.duration = absl::Seconds(16);
  EXPECT_TRUE(MakeSchedule(brief).empty());
}

}  // namespace
}  // namespace causeway
