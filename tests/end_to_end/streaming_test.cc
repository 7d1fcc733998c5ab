// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Streaming DiLoCo over real gRPC: its degenerate cases, which are known
// algorithms; islands with different overlaps; late updates.
#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/tensors/model_layout.h"
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
using testing::Pointwise;

std::vector<float> Initial(const v1::RunConfig& config) {
  return InitialParameters(MakeModelLayout(config.model()), config.seed());
}

// Every operation is rounded as docs/numerics.md says, so the result must match
// bit for bit.
TEST(DegenerateTest, WithoutOverlapAnyFragmentsAreDiLoCoBitForBit) {
  v1::RunConfig config = SyntheticConfig();
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
  for (const uint32_t fragments : {1, 4}) {
    config.mutable_synchronization()->set_fragments(fragments);
    EXPECT_EQ(RunTwoIslands(config).global, theta) << fragments;
  }
}

TEST(DegenerateTest, H1WithPlainSgdIsDataParallel) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_training()->set_total_steps(12);
  config.mutable_synchronization()->set_inner_steps_per_round(1);
  config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  // The mean gradient equals the mean target's.
  EXPECT_THAT(RunTwoIslands(config).global,
              Pointwise(FloatNear(1e-5f), Descend(Initial(config), -1, 12)));
}

// A lone island with a plain outer step keeps all its steps, even if updates
// are late.
TEST(DegenerateTest, OneIslandWithOverlapTrainsAsIfThereWereNone) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_membership()->set_min_islands(1);
  config.mutable_synchronization()->set_fragments(4);
  config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  for (const uint32_t overlap : {0, 3, 9}) {
    SCOPED_TRACE(overlap);
    config.mutable_synchronization()->set_overlap_steps(overlap);
    const SyntheticResult run =
        RunIslands(config, NewStateDir(),
                   {{.name = "only", .target = 2, .instance_id = 1}});
    EXPECT_THAT(run.global,
                Pointwise(FloatNear(1e-5f), Descend(Initial(config), 2, 30)));
  }
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
  EXPECT_THAT(island.Join(), IsInvalidArgument("overlap_steps is 10"));
}

// West never makes its first send. East sends at step 10, should have the
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

// On the slow uplink, a contribution takes four times the time that there is.
// The coordinator measures both uplinks and plans fewer bits for the slow one,
// whose contributions are then merged.
TEST(UplinkBitsTest, ASlowUplinkGetsFewerBitsAndAFastOneDoesNot) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_model()->set_hidden_size(128);
  config.mutable_model()->set_intermediate_size(256);
  config.mutable_training()->set_total_steps(100000);
  v1::SynchronizationConfig& sync = *config.mutable_synchronization();
  sync.set_inner_steps_per_round(50);
  sync.set_overlap_steps(25);
  sync.set_uplink_format(v1::ECQ);
  sync.set_downlink_format(v1::ECQ);
  sync.set_ecq_bits(4);
  sync.set_uplink_bits_floor(0.5);
  constexpr absl::Duration kStep = absl::Milliseconds(20);
  ASSERT_OK_AND_ASSIGN(const auto run,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  IslandUnderTest::Options options{.name = "fast",
                                   .address = run->address(),
                                   .target = 1,
                                   .instance_id = 1,
                                   .before_step = [&](uint64_t) {
                                     absl::SleepFor(kStep);
                                     return absl::OkStatus();
                                   }};
  IslandUnderTest fast(options);
  options.name = "slow";
  options.instance_id = 2;
  const double bytes =
      static_cast<double>(MakeModelLayout(config.model()).size) / 2;
  options.uplink_bytes_per_second =
      bytes / absl::ToDoubleSeconds(4 * sync.overlap_steps() * kStep);
  IslandUnderTest slow(options);
  const auto island = [&](int i) {
    return run->engine().ListIslands(true).islands(i);
  };
  run->AwaitProgress([&](const v1::IslandProgress&) {
    return run->engine().ListIslands(true).islands_size() == 2 &&
           island(1).progress().uplink_bits() > 0 &&
           island(1).progress().uplink_bits() < 3;
  });
  const uint64_t merged = island(1).contributions_merged();
  const uint64_t sent = island(1).progress().bytes_up();
  run->AwaitProgress([&](const v1::IslandProgress&) {
    return island(1).contributions_merged() >= merged + 3;
  });
  EXPECT_EQ(island(0).progress().uplink_bits(), 4);
  EXPECT_LT(static_cast<double>(island(1).progress().bytes_up() - sent),
            3 * bytes);
  EXPECT_GT(island(1).uplink_bits_in_time(), 0);
  fast.Stop();
  slow.Stop();
}

}  // namespace
}  // namespace causeway
