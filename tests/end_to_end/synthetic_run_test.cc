// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the outer loop over real gRPC with the algorithms' equations.
#include "tests/end_to_end/synthetic_run.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/reference_run.h"

namespace causeway {
namespace {

using testing::Each;
using testing::FloatNear;
using testing::Pointwise;

// The targets of east and west.
const std::vector<ReferenceIsland> kTargets = {{.target = 1}, {.target = -3}};

struct Setting {
  const char* name;
  uint32_t fragments;
  uint32_t overlap;
  uint32_t total_steps;
};

class AlgorithmTest : public testing::TestWithParam<Setting> {};

TEST_P(AlgorithmTest, GivesWhatTheEquationsSay) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(GetParam().fragments);
  config.mutable_synchronization()->set_overlap_steps(GetParam().overlap);
  config.mutable_training()->set_total_steps(GetParam().total_steps);
  const SyntheticResult run = RunTwoIslands(config);
  EXPECT_THAT(run.global,
              Pointwise(FloatNear(2e-5f), ReferenceRun(config, kTargets)));
  EXPECT_THAT(run.locals, Each(run.global));
}

INSTANTIATE_TEST_SUITE_P(
    All, AlgorithmTest,
    testing::Values(Setting{"DiLoCo", 1, 0, 30},
                    Setting{"PartialLastWindow", 1, 0, 27},
                    Setting{"Streaming", 4, 0, 30},
                    Setting{"StreamingOverlap", 4, 3, 34},
                    Setting{"OverlapLongerThanSpacing", 4, 7, 40},
                    Setting{"OverlapOfNearlyARound", 1, 9, 57}),
    [](const auto& info) { return std::string(info.param.name); });

struct Wire {
  const char* name;
  // The fields of the configuration's `synchronization`.
  const char* fields;
  // The largest effect of rounding: the root mean square of the difference from
  // exact transport, relative to that of the distance to the start.
  double tolerance;
};

double Distance(const std::vector<float>& left,
                const std::vector<float>& right) {
  double sum = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    sum += std::pow(left[i] - right[i], 2);
  }
  return std::sqrt(sum / static_cast<double>(left.size()));
}

class WireTest : public testing::TestWithParam<Wire> {};

// Rounding on the wire is the same for all: islands and coordinator end with
// the same bits, near the result of exact transport.
TEST_P(WireTest, EverybodyHoldsTheSameBits) {
  v1::RunConfig config = SyntheticConfig();
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(
      GetParam().fields, config.mutable_synchronization()));
  const SyntheticResult run = RunTwoIslands(config);
  EXPECT_THAT(run.locals, Each(run.global));
  const std::vector<float> expected = ReferenceRun(config, kTargets);
  const std::vector<float> start =
      InitialParameters(MakeModelLayout(config.model()), config.seed());
  EXPECT_NE(run.global, expected);
  EXPECT_LT(Distance(run.global, expected),
            GetParam().tolerance * Distance(start, expected));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, WireTest,
    testing::Values(
        Wire{"E3m0", "uplink_format: E3M0 downlink_format: E3M0", 0.3},
        Wire{"Int4EntropyCoded",
             "uplink_format: INT4 downlink_format: INT4 entropy_coding: true",
             0.1},
        Wire{"StreamingInt4",
             "fragments: 4 overlap_steps: 3 uplink_format: INT4 "
             "downlink_format: INT4",
             0.2},
        Wire{"EcqWithErrorFeedback",
             "uplink_format: ECQ downlink_format: ECQ error_feedback: 1", 0.2},
        Wire{"EcqOfTwoBitsWithErrorFeedback",
             "uplink_format: ECQ downlink_format: INT8 error_feedback: 1 "
             "ecq_bits: 2",
             0.5},
        Wire{"Int8", "uplink_format: INT8 downlink_format: BF16 block_size: 64",
             0.05}),
    [](const auto& info) { return info.param.name; });

TEST(SyntheticRunTest, AJoinerTakesPartFromItsFirstFullWindow) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_membership()->set_min_islands(1);
  config.mutable_training()->set_total_steps(60);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  absl::Notification half_way;
  absl::Notification joined;
  IslandUnderTest east({.name = "east",
                        .address = coordinator->address(),
                        .target = 1,
                        .instance_id = 1,
                        .before_step = [&](uint64_t step) {
                          if (step == 25) {
                            half_way.Notify();
                            joined.WaitForNotification();
                          }
                          return absl::OkStatus();
                        }});
  half_way.WaitForNotification();
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .target = -3,
                        .instance_id = 2,
                        .before_step = [&](uint64_t) {
                          if (!joined.HasBeenNotified()) joined.Notify();
                          return absl::OkStatus();
                        }});
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
  // Rounds 4, 5 and 6 have both islands; round 3 was under way when west came.
  const v1::ListIslandsResponse islands =
      coordinator->engine().ListIslands(true);
  EXPECT_EQ(islands.islands(0).contributions_merged(), 6);
  EXPECT_EQ(islands.islands(1).contributions_merged(), 3);
  EXPECT_GE(islands.islands(1).tokens_merged(),
            30 * QuadraticTrainer::kTokensPerStep);
}

}  // namespace
}  // namespace causeway
