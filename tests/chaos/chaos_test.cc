// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the chaos kit briefly, with one fault of each kind.
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/schedule.h"
#include "tests/end_to_end/process.h"

namespace causeway {
namespace {

constexpr int kSkipped = 77;

TEST(ChaosTest, NothingIsLostOrCountedTwice) {
  const std::string directory = std::getenv("TEST_TMPDIR");
  const std::string json = absl::StrCat(directory, "/report.json");
  // The time is half an interval, seven faults, and one more interval.
  Process chaos(
      {ProgramPath("tests/chaos/causeway-chaos"), "--programs", ProgramPath(""),
       "--json", json, "--islands", "3", "--minutes", "0.5",
       "--baseline_minutes", "0.05", "--fault_seconds", "3.7", "--step_seconds",
       "0.05", "--directory", absl::StrCat(directory, "/runs")},
      absl::StrCat(directory, "/chaos.log"));
  const int code = chaos.Wait(absl::Minutes(4));
  if (code == kSkipped) GTEST_SKIP() << chaos.Output();
  ASSERT_EQ(code, 0) << chaos.Output();
  const nlohmann::json report = nlohmann::json::parse(FileText(json));
  EXPECT_EQ(report["lost"], 0);
  EXPECT_EQ(report["double_counted"], 0);
  EXPECT_EQ(report["faults"], kFaultKinds);
  EXPECT_EQ(report["restart_seconds_each"].size(), 1);
  // The speed depends on the machine, but the run must have continued.
  EXPECT_GT(report["goodput"], 0.1);
  EXPECT_GT(report["rounds"], 10);
}

}  // namespace
}  // namespace causeway
