// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Streaming DiLoCo over real gRPC: its degenerate cases, which are known
// algorithms; islands with different overlaps; late updates; eager updates.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/reference_run.h"
#include "tests/end_to_end/synthetic_run.h"

namespace causeway {
namespace {

using testing::Each;
using testing::Field;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

std::vector<float> Initial(const v1::RunConfig& config) {
  return InitialParameters(MakeModelLayout(config.model()), config.seed());
}

// Every operation is rounded as docs/numerics.md says, so the result must match
// bit for bit.
TEST(DegenerateTest, OneFragmentWithoutOverlapIsDiLoCoBitForBit) {
  const v1::RunConfig config = SyntheticConfig();
  const float lr = 0.5f;
  const float mu = 0.5f;
  std::vector<float> theta = Initial(config);
  std::vector<float> momentum(theta.size());
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> east = Descend(theta, 1, 10);
    const std::vector<float> west = Descend(theta, -3, 10);
    for (size_t k = 0; k < theta.size(); ++k) {
      float g = 0.5f * (theta[k] - east[k]);
      g += 0.5f * (theta[k] - west[k]);
      momentum[k] = mu * momentum[k] + g;
      theta[k] += -lr * (g + mu * momentum[k]);
    }
  }
  EXPECT_EQ(RunTwoIslands(config).global, theta);
}

TEST(DegenerateTest, MixingOneIsTrainingAlone) {
  for (const bool streaming : {false, true}) {
    v1::RunConfig config = SyntheticConfig();
    config.mutable_synchronization()->set_mixing(1);
    if (streaming) {
      config.mutable_synchronization()->set_fragments(4);
      config.mutable_synchronization()->set_overlap_steps(3);
    }
    const SyntheticResult run = RunTwoIslands(config);
    EXPECT_EQ(run.locals[0], Descend(Initial(config), 1, 30));
    EXPECT_EQ(run.locals[1], Descend(Initial(config), -3, 30));
  }
}

TEST(DegenerateTest, EagerUpdatesWithoutOverlapChangeNoBit) {
  v1::RunConfig config = SyntheticConfig();
  const std::vector<float> plain = RunTwoIslands(config).global;
  config.mutable_synchronization()->set_eager_updates(true);
  EXPECT_EQ(RunTwoIslands(config).global, plain);
}

TEST(StreamingTest, TheFirstWindowOfAFragmentIsARoundOrMore) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(4);
  config.mutable_synchronization()->set_overlap_steps(3);
  const std::string state_dir = NewStateDir();
  RunIslands(
      config, state_dir,
      {{.name = "east", .instance_id = 1}, {.name = "west", .instance_id = 2}});
  const v1::FragmentPlan plan =
      *MakeFragmentPlan(MakeModelLayout(config.model()), config);
  ASSERT_OK_AND_ASSIGN(const auto state,
                       StateDirectory::OpenReadOnly(state_dir));
  for (const v1::Fragment& fragment : plan.fragments()) {
    // The first send comes after H + t_p steps, the next after H more.
    for (const uint64_t base : {0, 1}) {
      ASSERT_OK_AND_ASSIGN(
          const std::vector<ContributionRecord> merged,
          state->log().MergedContributions(fragment.id(), base));
      EXPECT_EQ(merged.size(), 2u);
      const uint64_t steps = base == 0 ? 10 + fragment.send_offset_steps() : 10;
      EXPECT_THAT(merged, Each(Field(&ContributionRecord::inner_steps, steps)));
    }
  }
}

TEST(StreamingTest, EveryIslandMayHaveAnOverlapOfItsOwn) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(3);
  config.mutable_synchronization()->set_overlap_steps(1);
  config.mutable_synchronization()->set_mixing(0.25);
  config.mutable_training()->set_total_steps(46);
  const SyntheticResult run = RunIslands(
      config, NewStateDir(),
      {{.name = "east", .target = 1, .instance_id = 1},
       {.name = "west", .target = -3, .instance_id = 2, .overlap_steps = 6}});
  EXPECT_THAT(
      run.global,
      Pointwise(FloatNear(2e-5f),
                ReferenceRun(config, {{.target = 1},
                                      {.target = -3, .overlap_steps = 6}})));
  EXPECT_EQ(run.islands.islands(0).progress().overlap_steps(), 1u);
  EXPECT_EQ(run.islands.islands(1).progress().overlap_steps(), 6u);
}

TEST(StreamingTest, AnOverlapOfAWholeRoundIsRefused) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_membership()->set_min_islands(1);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  IslandUnderTest island({.name = "east",
                          .address = coordinator->address(),
                          .instance_id = 1,
                          .overlap_steps = 10});
  EXPECT_THAT(island.Join(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("overlap_steps is 10")));
}

// West does not come to its first send. East sends at step 10, should have the
// update at 13, and trains on without it up to step 17, where it waits.
TEST(StreamingTest, ALateUpdateStopsTrainingOnlyAfterTheGreatestOverlap) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_overlap_steps(3);
  config.mutable_synchronization()->set_max_overlap_steps(4);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  absl::Notification released;
  absl::Notification reported;
  std::atomic<bool> stood_still = false;
  IslandUnderTest east({.name = "east",
                        .address = coordinator->address(),
                        .instance_id = 1,
                        .before_step = [&](uint64_t step) {
                          if (step == 18) {
                            stood_still = released.HasBeenNotified();
                          }
                          if (step == 20) reported.WaitForNotification();
                          return absl::OkStatus();
                        }});
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .instance_id = 2,
                        .before_step = [&](uint64_t step) {
                          if (step == 10) released.WaitForNotification();
                          return absl::OkStatus();
                        }});
  coordinator->AwaitProgress([](const v1::IslandProgress& east) {
    return east.run_step() == 17 && east.wait_seconds() > 0;
  });
  released.Notify();
  const v1::IslandProgress late = coordinator->AwaitProgress(
      [](const v1::IslandProgress& east) { return east.run_step() == 19; });
  reported.Notify();
  EXPECT_EQ(late.late_updates(), 1u);
  EXPECT_EQ(late.overrun_steps(), 4u);
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
  EXPECT_TRUE(stood_still);
}

struct EagerSetting {
  const char* name;
  uint32_t fragments;
  double mixing;
  uint32_t east_overlap;
  uint32_t west_overlap;
};

class EagerTest : public testing::TestWithParam<EagerSetting> {};

TEST_P(EagerTest, GivesWhatTheEquationsSay) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(GetParam().fragments);
  config.mutable_synchronization()->set_mixing(GetParam().mixing);
  config.mutable_synchronization()->set_eager_updates(true);
  config.mutable_training()->set_total_steps(57);
  const uint32_t overlaps[] = {GetParam().east_overlap,
                               GetParam().west_overlap};
  EXPECT_THAT(
      RunIslands(config, NewStateDir(),
                 {{.name = "east",
                   .target = 1,
                   .instance_id = 1,
                   .overlap_steps = overlaps[0]},
                  {.name = "west",
                   .target = -3,
                   .instance_id = 2,
                   .overlap_steps = overlaps[1]}})
          .global,
      Pointwise(FloatNear(5e-5f),
                ReferenceRun(config,
                             {{.target = 1, .overlap_steps = overlaps[0]},
                              {.target = -3, .overlap_steps = overlaps[1]}})));
}

INSTANTIATE_TEST_SUITE_P(
    All, EagerTest,
    testing::Values(EagerSetting{"NearlyAWholeRound", 1, 0, 9, 9},
                    EagerSetting{"Streaming", 4, 0, 4, 4},
                    EagerSetting{"StreamingMixing", 4, 0.5, 6, 6},
                    EagerSetting{"OnlyOneOverlaps", 3, 0, 0, 7}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace causeway
