// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the lab as users do, with the short scenarios. Skipped where network
// namespaces are not permitted.
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process.h"

namespace causeway {
namespace {

constexpr int kSkipped = 77;

std::string TestPath(absl::string_view name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

// Runs one of the scenarios into `report`. Returns the lab's exit code.
int RunScenario(const std::string& name, nlohmann::json& report) {
  const std::string json = TestPath(name + ".json");
  Process lab(
      {ProgramPath("tests/wan/causeway-wan-lab"), "--scenario",
       ProgramPath(absl::StrCat("tests/wan/scenarios/", name, ".textproto")),
       "--programs", ProgramPath(""), "--json", json},
      TestPath(name + ".log"));
  const int code = lab.Wait(absl::Minutes(4));
  if (code == 0) {
    report = nlohmann::json::parse(FileText(json));
  } else {
    std::cout << lab.Output();
  }
  return code;
}

TEST(LabTest, MeasuresTheSmokeScenario) {
  nlohmann::json report;
  const int code = RunScenario("smoke", report);
  if (code == kSkipped) GTEST_SKIP();
  ASSERT_EQ(code, 0);

  ASSERT_EQ(report["settings"].size(), 2);
  for (const nlohmann::json& setting : report["settings"]) {
    SCOPED_TRACE(setting["setting"]);
    EXPECT_EQ(setting["false_evictions"], 0);
    EXPECT_EQ(setting["evictions"], 0);
    // Guessing bytes at random costs ln 258 = 5.55 nats.
    EXPECT_LT(setting["val_loss"], 4.5);
    EXPECT_LE(setting["peak_mbit_s"], 20.5);
    EXPECT_GT(setting["compute_utilization"], 0);
    EXPECT_LE(setting["training_share"], 1);
    for (const char* direction : {"up", "down"}) {
      SCOPED_TRACE(direction);
      // Frames carry the encoded bytes, headers, heartbeats, and the bytes that
      // the partition dropped.
      const double encoded = setting[absl::StrCat("bytes_", direction)];
      const double wire = setting[absl::StrCat("wire_bytes_", direction)];
      EXPECT_GT(wire, 1.03 * encoded);
      EXPECT_LT(wire, 1.2 * encoded + 300'000);
    }
    const nlohmann::json& south = setting["runs"][0]["islands"][1];
    EXPECT_EQ(south["name"], "south");
    EXPECT_GT(south["up"]["frames_partitioned"], 0);
    EXPECT_NEAR(south["up"]["measured_mbit_s"], 20, 3);
    EXPECT_NEAR(south["measured_round_trip_ms"], 22, 3);
  }
  const nlohmann::json& plain = report["settings"][0];
  const nlohmann::json& streaming = report["settings"][1];
  // Two islands send, in four rounds, 357 216 parameters of four bytes.
  EXPECT_EQ(plain["bytes_up"], 2 * 4 * 357'216 * 4);
  EXPECT_LT(streaming["bytes_up"], plain["bytes_up"].get<double>() / 7);
  EXPECT_GT(streaming["training_share"], plain["training_share"]);
  EXPECT_EQ(report["baselines"].size(), 1);
}

// The contribution takes longer than the lease, over eight connections.
TEST(LabTest, BulkDataStarveNoHeartbeat) {
  nlohmann::json report;
  const int code = RunScenario("starved", report);
  if (code == kSkipped) GTEST_SKIP();
  ASSERT_EQ(code, 0);
  const nlohmann::json& setting = report["settings"][0];
  EXPECT_EQ(setting["evictions"], 0);
  // Two rounds have 435 072 values, none of which is sent twice.
  EXPECT_EQ(setting["bytes_up"], 2 * 435'072 * 4);
  EXPECT_GT(setting["seconds"], 2 * 435'072 * 4 * 8 / 1e6);
  EXPECT_LE(setting["peak_mbit_s"], 1.05);
}

TEST(LabTest, RefusesAWrongScenario) {
  Process lab({ProgramPath("tests/wan/causeway-wan-lab"), "--scenario",
               ProgramPath("tests/wan/main.cc"), "--programs", ProgramPath("")},
              TestPath("wrong.log"));
  EXPECT_EQ(lab.Wait(), 1);
  EXPECT_THAT(lab.Output(), testing::HasSubstr("main.cc:1:"));
}

}  // namespace
}  // namespace causeway
