// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_command.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The model has 1.2 million values in 12 layers of 0.1 million: 0.4 Mbit a
// layer in FP32.
constexpr char kModel[] =
    "--parameters 1.2e6 --layers 12 --step_seconds 1 --merge_mvalues inf "
    "--inner_steps_per_round 10"
    " --uplink_format FP32 --downlink_format FP32";

constexpr char kConfig[] = R"pb(
  name: "test"
  model {
    layers: 2
    hidden_size: 16
    intermediate_size: 24
    heads: 4
    sequence_length: 8
  }
  training { total_steps: 100 batch_size: 2 }
  synchronization {
    inner_steps_per_round: 10
    fragments: 2
    uplink_format: FP32
    downlink_format: FP32
  }
  membership { min_islands: 3 }
)pb";

class PlanCommandTest : public testing::Test {
 protected:
  int Run(absl::string_view flags) {
    std::vector<std::string> words = {"plan"};
    for (absl::string_view word :
         absl::StrSplit(flags, ' ', absl::SkipEmpty())) {
      words.emplace_back(word);
    }
    out_.str("");
    err_.str("");
    return RunCommandLine("causeway", "", {PlanCommand()}, words, out_, err_);
  }

  nlohmann::json RunToJson(absl::string_view flags) {
    const std::string path = absl::StrCat(testing::TempDir(), "/plan.json");
    EXPECT_EQ(Run(absl::StrCat(flags, " --json ", path)), kExitOk)
        << err_.str();
    const absl::StatusOr<std::string> text = ReadFile(path);
    EXPECT_OK(text);
    return nlohmann::json::parse(*text);
  }

  std::string Write(absl::string_view name, absl::string_view content) {
    const std::string path = absl::StrCat(testing::TempDir(), "/", name);
    EXPECT_OK(WriteFileAtomically(path, {content}));
    return path;
  }

  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(PlanCommandTest, PredictsARun) {
  // 38.4 Mbit each way take 4 s and 2 s, which the other island's transfers do
  // not slow down.
  EXPECT_EQ(Run(absl::StrCat(kModel, " --up_mbit 9.6 --down_mbit 19.2")),
            kExitOk)
      << err_.str();
  EXPECT_EQ(out_.str(),
            "model        1.20M parameters, a step every 1 s\n"
            "exchange     H 10, P 1, tau 0, FP32 both ways; training waits "
            "after 0 steps\n"
            "a round      10 s of training; 4.58 MiB up, 4.58 MiB down for "
            "each island\n"
            "busy for     uplinks 4 s, downlinks 2 s, coordinator in 0 s, out "
            "0 s, outer steps 0 s\n"
            "traffic      5 times less than data parallel in 16 bits\n"
            "utilization  62.50 % of the time is spent training\n"
            "\n"
            "MBIT/S             UTILIZATION     UPLINK  MEAN  PEAK   DOWNLINK "
            " MEAN  PEAK\n"
            "each of 2 islands      62.50 %        9.6   2.4   9.6       19.2 "
            "  2.4  19.2\n"
            "coordinator                     unlimited   4.8  19.2  unlimited "
            "  4.8  38.4\n"
            "\n"
            "memory       island 41.2 MiB and activations, coordinator 32.0 "
            "MiB, at most 32.0 MiB; disk at most 197 MiB\n"
            "log          9.16 MiB a round: 48.3 GiB a day to the disk, 4.8 "
            "Mbit/s to each follower\n"
            "snapshots    1.53 MiB a round: 8.05 GiB a day to the disk\n");
}

TEST_F(PlanCommandTest, SaysWhichBitsSlowUplinksGet) {
  const std::string flags =
      "--parameters 1e6 --layers 4 --step_seconds 1 --merge_mvalues inf "
      "--inner_steps_per_round 10 --overlap_steps 4 --uplink_format ECQ "
      "--downlink_format ECQ --ecq_bits 4 --up_mbit 10 0.5 --down_mbit 1000";
  const std::string floor = absl::StrCat(flags, " --uplink_bits_floor 0.5");
  ASSERT_EQ(Run(flags), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("uplink bits")));
  ASSERT_EQ(Run(floor), kExitOk) << err_.str();
  // The download takes 4 of 4000 ms.
  EXPECT_THAT(out_.str(),
              HasSubstr("\nuplink bits  4, 1.79 of 4, as uplinks need\n"));
  const nlohmann::json plan = RunToJson(floor);
  EXPECT_EQ(plan["islands"][0]["uplink_bits"], 4);
  EXPECT_EQ(plan["islands"][1]["uplink_bits"], 1.79);
}

TEST_F(PlanCommandTest, IslandsMayDiffer) {
  const nlohmann::json plan = RunToJson(
      absl::StrCat(kModel,
                   " --up_mbit 9.6 3.84 --down_mbit inf --rtt_ms 0 1000 "
                   "--coordinator_in_mbit 100 --slow_start_after_idle=false"));
  ASSERT_EQ(plan["islands"].size(), 2);
  EXPECT_EQ(plan["islands"][1]["round_trip_seconds"], 1);
  EXPECT_TRUE(plan["islands"][1]["down_rate"].is_null());
  EXPECT_EQ(plan["coordinator"]["up_rate"], 100e6);
  // The slow island takes 10 s up and a round trip. The fast one waits half a
  // round trip less.
  EXPECT_NEAR(plan["islands"][1]["compute_utilization"], 10.0 / 21, 1e-9);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("island 1"), HasSubstr("island 2")));
}

TEST_F(PlanCommandTest, ARoundTakesAsLongAsTheSlowestIsland) {
  const auto log = [&](absl::string_view step_seconds) {
    EXPECT_EQ(Run(absl::StrCat("--parameters 1.2e6 --layers 12 --step_seconds ",
                               step_seconds,
                               " --up_mbit inf --merge_mvalues inf "
                               "--inner_steps_per_round 10 "
                               "--uplink_format FP32")),
              kExitOk)
        << err_.str();
    return std::vector<std::string>(absl::StrSplit(out_.str(), "\nlog "))
        .back();
  };
  EXPECT_THAT(log("4 4"), HasSubstr("a day to the disk"));
  EXPECT_EQ(log("1 4"), log("4 4"));
}

TEST_F(PlanCommandTest, FlagsChangeAConfiguration) {
  const std::string config = Write("run.textproto", kConfig);
  const nlohmann::json plan =
      RunToJson(absl::StrCat("--config ", config,
                             " --step_seconds 1 --up_mbit inf --overlap_steps "
                             "3 --uplink_format E3M0"));
  const nlohmann::json& sync = plan["synchronization"];
  EXPECT_EQ(sync["fragments"], 2);
  EXPECT_EQ(sync["overlap_steps"], 3);
  EXPECT_EQ(sync["uplink_format"], "E3M0");
  EXPECT_EQ(plan["islands"].size(), 3);
}

TEST_F(PlanCommandTest, FindsSettings) {
  const nlohmann::json plan =
      RunToJson(absl::StrCat(kModel, " --up_mbit 19.2 --want 0.9"));
  ASSERT_FALSE(plan["settings"].empty());
  for (const nlohmann::json& settings : plan["settings"]) {
    EXPECT_GE(settings["compute_utilization"], 0.9 - 1e-6);
  }
  EXPECT_EQ(Run(absl::StrCat(kModel, " --up_mbit 1e-6 --want 0.9")), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("Nothing that was tried reaches 90.00 %"));
  // A model of one block cannot be cut.
  EXPECT_EQ(Run("--parameters 1e6 --layers 1 --step_seconds 1 --up_mbit 100 "
                "--want 0.5"),
            kExitOk)
      << err_.str();
}

TEST_F(PlanCommandTest, SaysWhatIsMissingOrWrong) {
  const auto problem = [&](absl::string_view flags) {
    EXPECT_EQ(Run(flags), kExitUsage) << flags;
    return err_.str();
  };
  const std::string model(kModel);
  EXPECT_THAT(problem(""), HasSubstr("--config FILE, or --parameters N"));
  EXPECT_THAT(problem("--parameters 10 --layers 11 --step_seconds 1 "
                      "--up_mbit 1"),
              HasSubstr("cannot make a model of 11 layers"));
  EXPECT_THAT(problem("--parameters 1e9 --layers 1025"),
              HasSubstr("--layers N (1 to 1024)"));
  EXPECT_THAT(problem("--parameters 1e9 --layers 24 --outside_layers 2e9"),
              HasSubstr("--outside_layers is 2e+09"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --islands 4097"),
              HasSubstr("allowed: 0 to 4096"));
  EXPECT_THAT(problem(model), HasSubstr("--up_mbit RATE"));
  EXPECT_THAT(problem(model + " --up_mbit 0"),
              HasSubstr("the rate of an uplink is 0"));
  EXPECT_THAT(problem(model + " --up_mbit fast"),
              HasSubstr("--up_mbit: \"fast\" is no number"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --rtt_ms -5"),
              HasSubstr("--rtt_ms: \"-5\" is no number of 0 or more"));
  EXPECT_THAT(problem(model + " --up_mbit 1 2 3 --rtt_ms 1 2"),
              HasSubstr("--rtt_ms has 2 values for 3 islands"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --uplink_format E9M9"),
              HasSubstr("--uplink_format: Unknown enumeration value"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --overlap_steps 10"),
              HasSubstr("must be less than inner_steps_per_round"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --uplink_bits -3"),
              HasSubstr("must be 0 or more"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --uplink_bits nan"),
              HasSubstr("must be 0 or more"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --want 1.5"),
              HasSubstr("the wanted utilization is 1.5"));
  EXPECT_THAT(problem(model + " --up_mbit 1 --want -1"),
              HasSubstr("the wanted utilization is -1"));
  EXPECT_THAT(
      problem(model + " --up_mbit 1 --want 0.9 --max_overlap_steps 10000"),
      HasSubstr("rounds of at most 10000 steps are tried"));
  EXPECT_EQ(Run("--config none.textproto --step_seconds 1"), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("none.textproto"));
}

}  // namespace
}  // namespace causeway
