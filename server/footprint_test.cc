// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/footprint.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;

TEST(FootprintTest, StateHasAVectorForEachThingThatIsKept) {
  v1::RunConfig config;
  config.mutable_outer_optimizer()->set_algorithm(Outer::SGD);
  config.mutable_synchronization()->set_downlink_format(v1::FP32);
  EXPECT_EQ(StateBytesPerValue(config), 4);
  config.mutable_outer_optimizer()->set_algorithm(Outer::NESTEROV);
  EXPECT_EQ(StateBytesPerValue(config), 8);
  config.mutable_synchronization()->set_downlink_format(v1::E3M0);
  EXPECT_EQ(StateBytesPerValue(config), 12);
  config.mutable_outer_optimizer()->set_algorithm(Outer::DELAYED_NESTEROV);
  EXPECT_EQ(StateBytesPerValue(config), 16);
}

TEST(FootprintTest, CountsParametersUploadsAndFiles) {
  v1::RunConfig config;
  config.mutable_outer_optimizer()->set_algorithm(Outer::NESTEROV);
  config.mutable_synchronization()->set_uplink_format(v1::BF16);
  config.mutable_synchronization()->set_downlink_format(v1::FP32);
  config.mutable_synchronization()->set_entropy_coding(false);
  config.mutable_membership()->set_max_islands(10);
  config.mutable_storage()->set_versions_kept(3);
  config.mutable_storage()->set_update_history(5);
  config.mutable_storage()->set_snapshot_log_ratio(4);
  v1::FragmentPlan plan;
  plan.add_fragments()->set_size(1024);
  plan.add_fragments()->set_size(2048);
  Footprint footprint = CoordinatorFootprint(config, plan);
  EXPECT_EQ(footprint.first_disk, 3072 * 8);
  EXPECT_EQ(footprint.uploads, 3072 * 2 * 10);
  // Four bytes of gradient replace twenty of contributions for each value.
  EXPECT_EQ(footprint.most_memory,
            3072 * 2 * 10 + 3072 * 8 + 2048 * (8 + 4 + 4));
  EXPECT_EQ(footprint.most_disk, (3 * 3072 + 2048) * 8 +
                                     3 * (4 * 3072 * 8 + 3072 * 4) +
                                     (5 * 3072 + 2048) * 4);
  config.mutable_membership()->set_max_islands(4);
  footprint = CoordinatorFootprint(config, plan);
  EXPECT_EQ(footprint.most_memory, 3072 * 2 * 4 + 3072 * 8 + 2048 * (8 + 4));
  EXPECT_EQ(footprint.most_disk, (3 * 3072 + 2048) * 8 +
                                     3 * (4 * 3072 * 8 + 3072 * 2 * 4) +
                                     (5 * 3072 + 2048) * 4);
}

TEST(FootprintTest, CountsDecompressedCodes) {
  v1::RunConfig config;
  config.mutable_synchronization()->set_uplink_format(v1::INT4);
  config.mutable_synchronization()->set_downlink_format(v1::FP32);
  config.mutable_synchronization()->set_entropy_coding(true);
  config.mutable_membership()->set_max_islands(3);
  v1::FragmentPlan plan;
  plan.add_fragments()->set_size(1024);
  plan.add_fragments()->set_size(2048);
  EXPECT_EQ(StagingBytesOf(config, plan).codes, 3 * 3072 / 2);
  const Footprint kept = CoordinatorFootprint(config, plan);
  config.mutable_synchronization()->set_entropy_coding(false);
  EXPECT_EQ(StagingBytesOf(config, plan).codes, 0);
  const Footprint none = CoordinatorFootprint(config, plan);
  // Each strip of an upload that is entropy coded has a header of four bytes.
  EXPECT_EQ(kept.most_memory - none.most_memory, 3 * (3072 / 2 + 2 * 4));
  // One outer step is made at once.
  config.mutable_synchronization()->set_entropy_coding(true);
  config.mutable_membership()->set_max_islands(1000);
  EXPECT_EQ(StagingBytesOf(config, plan).codes, 16 * 2048);
}

TEST(FootprintTest, AFewOuterStepsAreMadeAtOnce) {
  EXPECT_EQ(OuterStepsAtOnce(1), 1);
  EXPECT_EQ(OuterStepsAtOnce(3), 1);
  EXPECT_EQ(OuterStepsAtOnce(4), 2);
  EXPECT_EQ(OuterStepsAtOnce(100), 4);
  v1::RunConfig config;
  config.mutable_outer_optimizer()->set_algorithm(Outer::NESTEROV);
  config.mutable_synchronization()->set_uplink_format(v1::BF16);
  config.mutable_synchronization()->set_downlink_format(v1::FP32);
  config.mutable_membership()->set_max_islands(1);
  v1::FragmentPlan plan;
  for (const uint64_t size : {100, 400, 300, 200}) {
    plan.add_fragments()->set_size(size);
  }
  const Footprint footprint = CoordinatorFootprint(config, plan);
  EXPECT_EQ(footprint.most_memory - footprint.uploads,
            (1000 + 400 + 300) * 8 + 2 * 400 * 4);
}

TEST(FootprintTest, SaysWhatIsNeededAndWhatIsThere) {
  constexpr uint64_t kGibibyte = uint64_t{1} << 30;
  const Footprint footprint{.first_disk = 5.0 * kGibibyte};
  EXPECT_OK(CheckRoom(footprint, 5 * kGibibyte));
  EXPECT_THAT(
      CheckRoom(footprint, 4 * kGibibyte),
      IsResourceExhausted("needs 5.00 GiB of disk space, but 4.00 GiB"));
  EXPECT_THAT(
      CheckRoom({.first_disk = 15e6}, 5000000),
      IsResourceExhausted("needs 14.3 MiB of disk space, but 4.77 MiB"));
}

TEST(FootprintTest, WarnsOfTooLittleMemoryForTheFirstIslands) {
  v1::RunConfig config;
  config.mutable_synchronization()->set_uplink_format(v1::FP32);
  config.mutable_synchronization()->set_downlink_format(v1::FP32);
  config.mutable_membership()->set_min_islands(2);
  config.mutable_membership()->set_max_islands(64);
  v1::FragmentPlan plan;
  plan.add_fragments()->set_size(1 << 20);
  v1::RunConfig two = config;
  two.mutable_membership()->set_max_islands(2);
  const auto needed =
      static_cast<uint64_t>(CoordinatorFootprint(two, plan).most_memory);
  EXPECT_EQ(MemoryWarning(config, plan, needed), "");
  EXPECT_THAT(MemoryWarning(config, plan, needed - 1),
              testing::HasSubstr("with 2 islands this run takes up to"));
}

}  // namespace
}  // namespace causeway
