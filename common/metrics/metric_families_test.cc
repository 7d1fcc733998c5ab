// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metric_families.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Metric<v1::ConnectionUse> kRows[] = {
    {"ended_total", "Ended connections.", Field<&v1::ConnectionUse::cut>,
     "reason", "cut"},
    {"ended_total", "", Field<&v1::ConnectionUse::refused>, "reason",
     "refused"},
    {"open", "Open connections.", KnownField<&v1::ConnectionUse::open>},
};

TEST(MetricFamiliesTest, WritesAFamilyOfEachNameOnce) {
  v1::ConnectionUse use;
  use.set_cut(3);
  // Nothing is open, so the name has no sample of "a".
  MetricFamilies families;
  families.Add<v1::ConnectionUse>("x_", kRows, use, {{"run", "a"}});
  use.set_open(2);
  families.Add<v1::ConnectionUse>("x_", kRows, use, {{"run", "b\"\\\n"}});
  EXPECT_EQ(families.Text(),
            "# HELP x_ended_total Ended connections.\n"
            "# TYPE x_ended_total counter\n"
            "x_ended_total{run=\"a\",reason=\"cut\"} 3\n"
            "x_ended_total{run=\"a\",reason=\"refused\"} 0\n"
            "x_ended_total{run=\"b\\\"\\\\\\n\",reason=\"cut\"} 3\n"
            "x_ended_total{run=\"b\\\"\\\\\\n\",reason=\"refused\"} 0\n"
            "# HELP x_open Open connections.\n"
            "# TYPE x_open gauge\n"
            "x_open{run=\"b\\\"\\\\\\n\"} 2\n");
}

TEST(MetricFamiliesTest, ExactlyOneStateHolds) {
  MetricFamilies families;
  families.AddState({.name = "state", .help = "h"},
                    *v1::IslandStatus::State_descriptor(),
                    v1::IslandStatus::EVICTED, {});
  const std::string text = families.Text();
  EXPECT_THAT(text, HasSubstr("state{state=\"live\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("state{state=\"evicted\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("unspecified")));
}

TEST(MetricFamiliesTest, BucketsOfAHistogramAddUp) {
  v1::DurationHistogram durations;
  for (const double bound : {0.5, 1.}) {
    durations.add_upper_bounds_seconds(bound);
  }
  for (const int count : {2, 3, 4}) durations.add_counts(count);
  durations.set_sum_seconds(21.5);
  MetricFamilies families;
  families.AddHistogram({.name = "s", .help = "h"}, durations, {{"run", "a"}});
  EXPECT_EQ(families.Text(),
            "# HELP s h\n"
            "# TYPE s histogram\n"
            "s_count{run=\"a\"} 9\n"
            "s_sum{run=\"a\"} 21.5\n"
            "s_bucket{run=\"a\",le=\"0.5\"} 2\n"
            "s_bucket{run=\"a\",le=\"1\"} 5\n"
            "s_bucket{run=\"a\",le=\"+Inf\"} 9\n");
}

TEST(MetricFamiliesTest, LeavesOutWhatIsNoNumber) {
  MetricFamilies families;
  families.AddSample({.name = "n", .help = "h"},
                     std::numeric_limits<double>::quiet_NaN(), {});
  EXPECT_EQ(families.Text(), "# HELP n h\n# TYPE n gauge\n");
}

}  // namespace
}  // namespace causeway
