// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_part.h"

#include <cstdint>
#include <set>

#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace causeway {
namespace {

v1::JoinResponse Joined() {
  v1::JoinResponse joined;
  joined.mutable_identity()->set_island_id("east");
  joined.mutable_config()->set_seed(3);
  v1::SynchronizationConfig& config =
      *joined.mutable_config()->mutable_synchronization();
  config.set_uplink_format(v1::E3M0);
  config.set_downlink_format(v1::INT8);
  config.set_block_size(128);
  config.set_uplink_rounding(v1::SynchronizationConfig::STOCHASTIC);
  config.set_error_feedback(0.5);
  return joined;
}

TEST(FragmentPartTest, TheReplicaHasTheOptionsOfTheRun) {
  const ReplicaOptions options = MakeReplicaOptions(Joined());
  EXPECT_EQ(options.uplink.format, v1::E3M0);
  EXPECT_EQ(options.uplink.block_size, 128);
  EXPECT_EQ(options.uplink_options.rounding, Rounding::kStochastic);
  EXPECT_EQ(options.downlink.format, v1::INT8);
  EXPECT_EQ(options.error_feedback, 0.5f);
}

// A run can be repeated, but no two contributions round alike.
TEST(FragmentPartTest, EveryContributionHasASeedOfItsOwn) {
  std::set<uint64_t> seeds;
  for (const uint64_t run_seed : {3, 4}) {
    for (const char* const island : {"east", "west"}) {
      v1::JoinResponse joined = Joined();
      joined.mutable_config()->set_seed(run_seed);
      joined.mutable_identity()->set_island_id(island);
      const ReplicaOptions options = MakeReplicaOptions(joined);
      for (const uint32_t fragment : {0, 1, 2}) {
        for (const uint64_t version : {0, 1, 2}) {
          const EncodeOptions encode =
              ContributionOptions(options, fragment, version);
          EXPECT_EQ(encode.rounding, Rounding::kStochastic);
          EXPECT_EQ(encode.seed, ContributionOptions(MakeReplicaOptions(joined),
                                                     fragment, version)
                                     .seed);
          seeds.insert(encode.seed);
        }
      }
    }
  }
  EXPECT_EQ(seeds.size(), 2 * 2 * 3 * 3);
}

}  // namespace
}  // namespace causeway
