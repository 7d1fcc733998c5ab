// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/report.h"

#include <sstream>
#include <string>
#include <utility>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

IslandResult Island(const char* name, double training_share,
                    double steps_per_second) {
  IslandResult island;
  island.name = name;
  island.speed = {.training_share = training_share,
                  .steps_per_second = steps_per_second};
  return island;
}

TrialResult Result(double training_share, double steps_per_second) {
  TrialResult result;
  result.islands = {Island("north", training_share, steps_per_second),
                    Island("south", training_share, steps_per_second)};
  result.duration = absl::Seconds(10);
  return result;
}

TEST(ReportTest, HasTheMedianAndTheSpreadOfTheRuns) {
  Report report("test");
  for (const auto& [repeat, speed] : {std::pair(0, 4), {1, 6}, {2, 5}}) {
    report.AddBaseline(repeat, Result(1, speed));
  }
  report.Add("plain", "slow", 0, Result(0.5, 2));
  report.Add("plain", "slow", 1, Result(0.9, 3));
  report.Add("plain", "slow", 2, Result(0.6, 4));
  const nlohmann::ordered_json json = report.ToJson();
  ASSERT_EQ(json["settings"].size(), 1);
  const auto& plain = json["settings"][0];
  EXPECT_EQ(plain["setting"], "plain");
  EXPECT_EQ(plain["network"], "slow");
  EXPECT_DOUBLE_EQ(plain["training_share"], 0.6);
  EXPECT_DOUBLE_EQ(plain["training_share_min"], 0.5);
  EXPECT_DOUBLE_EQ(plain["training_share_max"], 0.9);
  // Each run is compared with its own baseline: 1/2, 1/2, 4/5.
  EXPECT_DOUBLE_EQ(plain["compute_utilization"], 0.5);
  EXPECT_DOUBLE_EQ(plain["compute_utilization_max"], 0.8);
  EXPECT_EQ(plain["runs"].size(), 3);
  EXPECT_EQ(json["baselines"].size(), 3);
}

TEST(ReportTest, AnEvenNumberOfRunsHasTheMeanOfTheMiddleTwo) {
  Report report("test");
  report.Add("plain", "slow", 0, Result(0.5, 2));
  report.Add("plain", "slow", 1, Result(0.7, 2));
  const nlohmann::ordered_json json = report.ToJson();
  EXPECT_DOUBLE_EQ(json["settings"][0]["training_share"], 0.6);
  EXPECT_FALSE(json["settings"][0].contains("compute_utilization"));
}

TEST(ReportTest, IsGoneOnWithFromItsJson) {
  Report first("test");
  first.AddBaseline(0, Result(1, 4));
  first.Add("plain", "slow", 0, Result(0.5, 2));
  const std::string text = first.ToJson().dump();
  ASSERT_OK_AND_ASSIGN(Report second, Report::Parse("test", text));
  EXPECT_EQ(second.ToJson().dump(), text);
  EXPECT_TRUE(second.HasBaseline(0));
  EXPECT_FALSE(second.HasBaseline(1));
  EXPECT_TRUE(second.Has("plain", "slow", 0));
  EXPECT_FALSE(second.Has("plain", "slow", 1));
  EXPECT_FALSE(second.Has("plain", "fast", 0));
  second.Add("plain", "fast", 0, Result(0.5, 3));
  EXPECT_DOUBLE_EQ(second.ToJson()["settings"][1]["compute_utilization"], 0.75);

  EXPECT_THAT(Report::Parse("other", text), IsInvalidArgument());
  EXPECT_THAT(Report::Parse("test", "{"), IsInvalidArgument());
  EXPECT_THAT(
      Report::Parse("test", R"({"scenario": "test", "baselines": [1]})"),
      IsInvalidArgument());
}

TEST(ReportTest, FiguresOfIslandsAreMeansAndEvictionsAreSums) {
  TrialResult result = Result(0.5, 2);
  result.islands[1].speed.training_share = 1;
  result.evictions = 3;
  result.false_evictions = 2;
  Report report("test");
  report.Add("plain", "slow", 0, result);
  report.Add("plain", "slow", 1, result);
  const nlohmann::ordered_json json = report.ToJson();
  const auto& plain = json["settings"][0];
  EXPECT_DOUBLE_EQ(plain["training_share"], 0.75);
  EXPECT_EQ(plain["evictions"], 6);
  EXPECT_EQ(plain["false_evictions"], 4);
}

TEST(ReportTest, PeaksAreOfTheBusiestSecond) {
  TrialResult result = Result(1, 1);
  // Each island sends 8 Mbit: in different seconds up, in the same second down.
  result.islands[0].counters.up.bytes_by_second = {1'000'000, 0};
  result.islands[1].counters.up.bytes_by_second = {0, 1'000'000, 500'000};
  result.islands[0].counters.down.bytes_by_second = {0, 700'000};
  result.islands[1].counters.down.bytes_by_second = {0, 800'000};
  for (IslandResult& island : result.islands) {
    island.counters.up.bytes = 1'500'000;
    island.counters.down.bytes = 800'000;
  }
  Report report("test");
  report.Add("plain", "slow", 0, result);
  const nlohmann::ordered_json json = report.ToJson();
  const auto& plain = json["settings"][0];
  EXPECT_DOUBLE_EQ(plain["peak_mbit_s"], 8);
  EXPECT_DOUBLE_EQ(plain["coordinator_peak_mbit_s"], 12);
  EXPECT_EQ(plain["wire_bytes_up"], 3'000'000);
  EXPECT_EQ(plain["wire_bytes_down"], 1'600'000);
}

TEST(ReportTest, PrintsALinePerSettingAndNetworkInTheirOrder) {
  Report report("test");
  report.Add("vanilla", "slow", 0, Result(0.5, 2));
  report.Add("streaming", "slow", 0, Result(0.995, 2));
  report.Add("vanilla", "slow", 1, Result(0.5, 2));
  std::ostringstream out;
  PrintReport(report.ToJson(), out);
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("UTILIZATION"));
  EXPECT_THAT(text, HasSubstr("99.50 %"));
  EXPECT_LT(text.find("vanilla"), text.find("streaming"));
  EXPECT_EQ(text.find("vanilla"), text.rfind("vanilla"));
}

}  // namespace
}  // namespace causeway
