// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/step_share.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(StepShare, IsExactInEveryWindowAndEven) {
  constexpr uint64_t kRound = 12;
  for (uint64_t share = 1; share <= kRound; ++share) {
    for (uint64_t begin = 1; begin <= 3 * kRound; ++begin) {
      uint64_t trained = 0;
      for (uint64_t step = begin; step < begin + kRound; ++step) {
        trained += IsTrained(step, share, kRound) ? 1 : 0;
      }
      EXPECT_EQ(trained, share) << "from step " << begin;
    }
  }
}

TEST(StepShare, TheLastStepOfARoundIsTrained) {
  for (uint64_t share = 1; share <= 10; ++share) {
    EXPECT_TRUE(IsTrained(10, share, 10));
    EXPECT_TRUE(IsTrained(20, share, 10));
  }
}

TEST(StepShare, NoShareIsAllSteps) {
  for (uint64_t step = 1; step < 30; ++step) {
    EXPECT_TRUE(IsTrained(step, 0, 10));
    EXPECT_TRUE(IsTrained(step, 10, 10));
  }
}

}  // namespace
}  // namespace causeway
