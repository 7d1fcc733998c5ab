// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/run_comparison.h"

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/status_report.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-9;

// North joins at 100 s, south at 110 s, and east at 150 s; east trains on alone
// once south has left. The newest commit is at 210 s.
StatusSnapshot Status() {
  StatusSnapshot status;
  using google::protobuf::TextFormat;
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        run_id: "run-1"
        config {
          model {
            layers: 2
            hidden_size: 8
            intermediate_size: 16
            heads: 2
            kv_heads: 2
            vocab_size: 16
            sequence_length: 32
          }
          training { batch_size: 4 }
          synchronization {
            inner_steps_per_round: 10
            fragments: 2
            uplink_format: FP32
            downlink_format: FP32
          }
          membership { min_islands: 2 }
        }
        parameters: 1000
        memory_bytes: 5000
        outer_step_seconds: 0.25
      )pb",
      &status.run));
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        islands {
          island_id: "east"
          state: LIVE
          joined_at { seconds: 150 }
          heartbeat_age_seconds: 2
          progress {
            tokens: 2560
            wait_seconds: 8
            bytes_up: 300
            bytes_down: 40
            uplink { bytes_per_second: 1e6 }
            downlink { bytes_per_second: 5e5 }
            round_trip_seconds: 0.15
          }
        }
        islands {
          island_id: "north"
          state: LIVE
          joined_at { seconds: 100 }
          progress { run_step: 1 }
        }
        islands {
          island_id: "south"
          state: LEFT
          joined_at { seconds: 110 }
          progress { tokens: 5120 wait_seconds: 20 memory_bytes: 77 }
        }
      )pb",
      &status.islands));
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        fragments {
          committed_at { seconds: 210 }
          size: 600
        }
        fragments {
          committed_at { seconds: 200 }
          size: 400
        }
      )pb",
      &status.fragments));
  return status;
}

TEST(MeasureTest, TimesAnIslandFromWhenItCouldTrain) {
  const absl::StatusOr<MeasuredRun> run =
      Measure(Status(), absl::FromUnixSeconds(220));
  ASSERT_OK(run);
  // North has not trained.
  ASSERT_EQ(run->islands.size(), 2);
  const MeasuredIsland& east = run->islands[0];
  EXPECT_EQ(east.name, "east");
  // Its time ends with its last heartbeat at 218 s.
  EXPECT_NEAR(east.seconds, 68, kExact);
  EXPECT_NEAR(east.steps, 20, kExact);
  EXPECT_NEAR(east.utilization(), 60.0 / 68, kExact);
  EXPECT_NEAR(east.step_seconds(), 3, kExact);
  EXPECT_EQ(east.up_bytes, 300);
  EXPECT_EQ(east.down_bytes, 40);
  const MeasuredIsland& south = run->islands[1];
  // It has left, so its time ends with the newest commit.
  EXPECT_NEAR(south.seconds, 100, kExact);
  EXPECT_NEAR(south.step_seconds(), 2, kExact);
  EXPECT_EQ(south.memory_bytes, 77);
  EXPECT_EQ(run->coordinator_bytes, 5000);
  // A mean fragment has 500 values and takes 0.25 s.
  EXPECT_NEAR(run->merge_rate, 2000, kExact);
}

// When the run waits for two islands, training begins with the second.
TEST(MeasureTest, TimesTheFirstIslandFromTheStartOfTheRun) {
  StatusSnapshot status = Status();
  status.islands.mutable_islands(1)->mutable_progress()->set_tokens(1280);
  const absl::StatusOr<MeasuredRun> run =
      Measure(status, absl::FromUnixSeconds(220));
  ASSERT_OK(run);
  ASSERT_EQ(run->islands.size(), 3);
  EXPECT_EQ(run->islands[1].name, "north");
  EXPECT_NEAR(run->islands[1].seconds, 110, kExact);
}

TEST(MeasureTest, ASavedStatusEndsWithTheNewestCommit) {
  const absl::StatusOr<MeasuredRun> run = Measure(Status(), std::nullopt);
  ASSERT_OK(run);
  EXPECT_NEAR(run->islands[0].seconds, 60, kExact);
}

TEST(MeasureTest, SaysThatNobodyHasTrained) {
  StatusSnapshot status = Status();
  status.islands.mutable_islands()->DeleteSubrange(2, 1);
  status.islands.mutable_islands()->DeleteSubrange(0, 1);
  EXPECT_EQ(Measure(status, std::nullopt).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(AssumptionsOfTest, AreTheRunsOwn) {
  const StatusSnapshot status = Status();
  const absl::StatusOr<MeasuredRun> run =
      Measure(status, absl::FromUnixSeconds(220));
  ASSERT_OK(run);
  ASSERT_OK_AND_ASSIGN(const RunAssumptions assumptions,
                       AssumptionsOf(status, *run, ""));
  EXPECT_EQ(assumptions.config.synchronization().fragments(), 2);
  ASSERT_EQ(assumptions.islands.size(), 2);
  EXPECT_NEAR(assumptions.islands[0].step_seconds, 3, kExact);
  EXPECT_EQ(assumptions.islands[0].link.up, 8e6);
  EXPECT_EQ(assumptions.islands[0].link.down, 4e6);
  EXPECT_EQ(assumptions.islands[0].round_trip_seconds, 0.15);
  // This island has transferred nothing.
  EXPECT_EQ(assumptions.islands[1].link.up, kUnlimited);
  const absl::StatusOr<RunPrediction> prediction = PredictRun(assumptions);
  ASSERT_OK(prediction);
  EXPECT_LT(prediction->simulated.islands[1].utilization, 0.67);
}

TEST(ParseStatusJsonTest, ReadsWhatStatusJsonWrites) {
  const StatusSnapshot status = Status();
  const absl::StatusOr<StatusSnapshot> parsed =
      ParseStatusJson(StatusJson(status));
  ASSERT_OK(parsed);
  EXPECT_EQ(StatusJson(*parsed), StatusJson(status));
}

TEST(ParseStatusJsonTest, SaysWhatIsWrong) {
  const auto problem = [](absl::string_view json) {
    return std::string(ParseStatusJson(json).status().message());
  };
  EXPECT_THAT(problem("{"), HasSubstr("not JSON"));
  EXPECT_THAT(problem("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem(R"({"run": {}})"), HasSubstr("no \"islands\""));
  EXPECT_THAT(problem(R"({"run": 3, "islands": [], "fragments": []})"),
              HasSubstr("RunStatus"));
}

// A later version's status has more to say.
TEST(ParseStatusJsonTest, SkipsWhatItDoesNotKnow) {
  EXPECT_OK(ParseStatusJson(
      R"({"run": {"run_id": "a", "news": 1}, "islands": [], "fragments": [],
          "links": []})"));
}

}  // namespace
}  // namespace causeway
