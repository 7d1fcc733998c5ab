// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/process_metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/version.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Returns the process's metric `name`; -1 if there is none.
double Value(const std::string& name) {
  MetricFamilies families;
  AddProcessMetrics(families);
  for (const absl::string_view line : absl::StrSplit(families.Text(), '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, " "))) continue;
    double value = -1;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(name.size() + 1), &value));
    return value;
  }
  return -1;
}

TEST(ProcessMetricsTest, TellsTheVersion) {
  EXPECT_EQ(
      Value(absl::StrCat("causeway_build_info{version=\"", kVersion, "\"}")),
      1);
}

TEST(ProcessMetricsTest, DescribesThisProcess) {
  EXPECT_GT(Value("process_cpu_seconds_total"), 0);
  EXPECT_GT(Value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_NEAR(Value("process_start_time_seconds"),
              absl::ToUnixSeconds(absl::Now()), 600);
  const double files = Value("process_open_fds");
  EXPECT_GE(files, 3);
  EXPECT_LE(files, Value("process_max_fds"));
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_EQ(Value("process_open_fds"), files + 1);
  close(file);
}

}  // namespace
}  // namespace causeway
