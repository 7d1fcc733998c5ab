// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/duration_histogram.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(DurationHistogramTest, CountsEachDurationOnceAtItsBound) {
  v1::DurationHistogram histogram;
  EXPECT_EQ(MeanSeconds(histogram), 0);
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Milliseconds(1), absl::Microseconds(1001),
        absl::Milliseconds(2), absl::Milliseconds(3), absl::Hours(24)}) {
    AddTo(duration, histogram);
  }
  ASSERT_EQ(histogram.counts_size(), histogram.upper_bounds_seconds_size() + 1);
  EXPECT_DOUBLE_EQ(histogram.upper_bounds_seconds(0), 0.001);
  EXPECT_DOUBLE_EQ(histogram.upper_bounds_seconds(1), 0.002);
  EXPECT_EQ(histogram.counts(0), 2);
  EXPECT_EQ(histogram.counts(1), 2);
  EXPECT_EQ(histogram.counts(2), 1);
  EXPECT_EQ(histogram.counts(histogram.counts_size() - 1), 1);
  EXPECT_DOUBLE_EQ(MeanSeconds(histogram), (0.007001 + 86400) / 6);
}

}  // namespace
}  // namespace causeway
