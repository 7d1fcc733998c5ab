// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/flags.h"

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "common/transport/field_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

class FlagsTest : public testing::Test {
 protected:
  FlagsTest() {
    absl::SetFlag(&FLAGS_coordinator, "127.0.0.1:1");
    absl::SetFlag(&FLAGS_island, "north");
    absl::SetFlag(&FLAGS_data, {"text"});
  }

 private:
  const absl::FlagSaver saver_;
};

TEST_F(FlagsTest, SeveralLeadersNeedSeveralProcesses) {
  EXPECT_EQ(UsageProblem(), "");
  absl::SetFlag(&FLAGS_island_leader, "127.0.0.1:2,127.0.0.1:3");
  EXPECT_THAT(UsageProblem(), HasSubstr("need --island_size above 1"));
  absl::SetFlag(&FLAGS_island_size, 2);
  EXPECT_EQ(UsageProblem(), "");
}

TEST_F(FlagsTest, AnIslandHasALimitedNumberOfRanks) {
  absl::SetFlag(&FLAGS_island_leader, "127.0.0.1:2");
  absl::SetFlag(&FLAGS_island_size, 4);
  absl::SetFlag(&FLAGS_ranks, kMostRanks / 4);
  EXPECT_EQ(UsageProblem(), "");
  absl::SetFlag(&FLAGS_ranks, kMostRanks / 4 + 1);
  EXPECT_THAT(UsageProblem(), HasSubstr("513 ranks"));
}

// Otherwise a supervisor would confuse failures with orderly ends.
TEST_F(FlagsTest, TheExitCodeOfAnInterruptionHasNoOtherMeaning) {
  for (const int code : {0, 4, 75, 125}) {
    absl::SetFlag(&FLAGS_interrupted_exit_code, code);
    EXPECT_EQ(UsageProblem(), "") << code;
  }
  for (const int code : {-1, 1, 2, 3, 126, 127, 128, 137, 255, 256}) {
    absl::SetFlag(&FLAGS_interrupted_exit_code, code);
    EXPECT_THAT(UsageProblem(), HasSubstr("allowed: 0, and 4 to 125")) << code;
  }
}

}  // namespace
}  // namespace causeway
