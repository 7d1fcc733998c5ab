// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/local_ranks.h"

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "common/testing/status_matchers.h"
#include "common/transport/field_limits.h"
#include "gtest/gtest.h"
#include "worker/flags.h"

namespace causeway {
namespace {

// A machine of a test has not enough GPUs, but an island too many processes.
TEST(FindLocalRanksTest, TheDevicesMayNotGiveAnIslandTooManyRanks) {
  const absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_device, "cpu");
  absl::SetFlag(&FLAGS_ranks, 0);
  absl::SetFlag(&FLAGS_island_size, kMostRanks);
  ASSERT_OK_AND_ASSIGN(const LocalRanks ranks, FindLocalRanks());
  EXPECT_EQ(ranks.count, 1);
  absl::SetFlag(&FLAGS_island_size, kMostRanks + 1);
  EXPECT_THAT(FindLocalRanks(), IsInvalidArgument("at most 2048 in all"));
}

}  // namespace
}  // namespace causeway
