// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/report.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

IslandResult Island(const char* name, double utilization,
                    double steps_per_second) {
  IslandResult island;
  island.name = name;
  island.speed = {.utilization = utilization,
                  .steps_per_second = steps_per_second};
  return island;
}

TrialResult Result(double utilization, double steps_per_second) {
  TrialResult result;
  result.islands = {Island("north", utilization, steps_per_second),
                    Island("south", utilization, steps_per_second)};
  result.duration = absl::Seconds(10);
  return result;
}

TEST(ReportTest, HasTheMedianAndTheSpreadOfTheRuns) {
  const nlohmann::ordered_json report =
      MakeReport("test",
                 {{"plain", "slow", 0, Result(0.5, 2)},
                  {"plain", "slow", 1, Result(0.9, 3)},
                  {"plain", "slow", 2, Result(0.6, 4)}},
                 {Result(1, 4), Result(1, 6), Result(1, 5)});
  ASSERT_EQ(report["settings"].size(), 1);
  const auto& plain = report["settings"][0];
  EXPECT_EQ(plain["setting"], "plain");
  EXPECT_EQ(plain["network"], "slow");
  EXPECT_DOUBLE_EQ(plain["compute_utilization"], 0.6);
  EXPECT_DOUBLE_EQ(plain["compute_utilization_min"], 0.5);
  EXPECT_DOUBLE_EQ(plain["compute_utilization_max"], 0.9);
  // Each against its own baseline: 1/2, 1/2, 4/5.
  EXPECT_DOUBLE_EQ(plain["relative_speed"], 0.5);
  EXPECT_DOUBLE_EQ(plain["relative_speed_max"], 0.8);
  EXPECT_EQ(plain["runs"].size(), 3);
  EXPECT_EQ(report["baselines"].size(), 3);
}

TEST(ReportTest, AnEvenNumberOfRunsHasTheMeanOfTheMiddleTwo) {
  const nlohmann::ordered_json report =
      MakeReport("test",
                 {{"plain", "slow", 0, Result(0.5, 2)},
                  {"plain", "slow", 1, Result(0.7, 2)}},
                 {});
  EXPECT_DOUBLE_EQ(report["settings"][0]["compute_utilization"], 0.6);
  EXPECT_FALSE(report["settings"][0].contains("relative_speed"));
}

TEST(ReportTest, FiguresOfIslandsAreMeansAndEvictionsAreSums) {
  TrialResult result = Result(0.5, 2);
  result.islands[1].speed.utilization = 1;
  result.evictions = 3;
  result.false_evictions = 2;
  const nlohmann::ordered_json report = MakeReport(
      "test", {{"plain", "slow", 0, result}, {"plain", "slow", 1, result}}, {});
  const auto& plain = report["settings"][0];
  EXPECT_DOUBLE_EQ(plain["compute_utilization"], 0.75);
  EXPECT_EQ(plain["evictions"], 6);
  EXPECT_EQ(plain["false_evictions"], 4);
}

TEST(ReportTest, PeaksAreOfTheBusiestSecond) {
  TrialResult result = Result(1, 1);
  // 8 Mbit each; in different seconds up, in the same second down.
  result.islands[0].counters.up.bytes_by_second = {1'000'000, 0};
  result.islands[1].counters.up.bytes_by_second = {0, 1'000'000, 500'000};
  result.islands[0].counters.down.bytes_by_second = {0, 700'000};
  result.islands[1].counters.down.bytes_by_second = {0, 800'000};
  for (IslandResult& island : result.islands) {
    island.counters.up.bytes = 1'500'000;
    island.counters.down.bytes = 800'000;
  }
  const nlohmann::ordered_json report =
      MakeReport("test", {{"plain", "slow", 0, result}}, {});
  const auto& plain = report["settings"][0];
  EXPECT_DOUBLE_EQ(plain["peak_mbit_s"], 8);
  EXPECT_DOUBLE_EQ(plain["coordinator_peak_mbit_s"], 12);
  EXPECT_EQ(plain["wire_bytes_up"], 3'000'000);
  EXPECT_EQ(plain["wire_bytes_down"], 1'600'000);
}

TEST(ReportTest, PrintsALinePerSettingAndNetworkInTheirOrder) {
  const nlohmann::ordered_json report =
      MakeReport("test",
                 {{"vanilla", "slow", 0, Result(0.5, 2)},
                  {"streaming", "slow", 0, Result(0.995, 2)},
                  {"vanilla", "slow", 1, Result(0.5, 2)}},
                 {});
  std::ostringstream out;
  PrintReport(report, out);
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("99.50 %"));
  EXPECT_LT(text.find("vanilla"), text.find("streaming"));
  EXPECT_EQ(text.find("vanilla"), text.rfind("vanilla"));
}

}  // namespace
}  // namespace causeway
