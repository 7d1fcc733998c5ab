// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_part.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(FragmentPartTest, TheReplicaHasTheOptionsOfTheRun) {
  v1::SynchronizationConfig config;
  config.set_uplink_format(v1::E3M0);
  config.set_downlink_format(v1::INT8);
  config.set_block_size(128);
  config.set_ecq_bits(1.5);
  config.set_error_feedback(0.5);
  const ReplicaOptions options = MakeReplicaOptions(config);
  EXPECT_EQ(options.uplink.format, v1::E3M0);
  EXPECT_EQ(options.uplink.block_size, 128);
  EXPECT_EQ(options.uplink_options.ecq_bits, 1.5);
  EXPECT_EQ(options.downlink.format, v1::INT8);
  EXPECT_EQ(options.error_feedback, 0.5f);
}

TEST(FragmentPartTest, ParametersRestIfTrainingWaitsForEveryUpdate) {
  v1::SynchronizationConfig config;
  EXPECT_TRUE(MakeReplicaOptions(config).parameters_rest);
  config.set_max_overlap_steps(1);
  EXPECT_FALSE(MakeReplicaOptions(config).parameters_rest);
  config.set_max_overlap_steps(0);
  config.set_overlap_steps(1);
  EXPECT_FALSE(MakeReplicaOptions(config).parameters_rest);
}

}  // namespace
}  // namespace causeway
