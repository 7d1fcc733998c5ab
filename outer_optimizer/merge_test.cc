// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/merge.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsNan;
using Outer = v1::OuterOptimizerConfig;

constexpr Outer::Weighting kWeightings[] = {Outer::TOKENS, Outer::UNIFORM,
                                            Outer::TOKENS_SQUARED_PER_STEP};

TEST(MergeSharesTest, FollowTheirFormulas) {
  const std::vector<Effort> efforts = {{100, 10}, {300, 10}};
  EXPECT_THAT(MergeShares(Outer::TOKENS, efforts), ElementsAre(0.25f, 0.75f));
  EXPECT_THAT(MergeShares(Outer::UNIFORM, efforts), ElementsAre(0.5f, 0.5f));
  // The weights are 100 * 10 and 300 * 30.
  EXPECT_THAT(MergeShares(Outer::TOKENS_SQUARED_PER_STEP, efforts),
              ElementsAre(0.1f, 0.9f));
}

TEST(MergeSharesTest, ASingleContributionIsTheMerge) {
  for (const Outer::Weighting weighting : kWeightings) {
    for (const uint64_t tokens :
         {uint64_t{1}, uint64_t{12345677}, ~uint64_t{0}}) {
      EXPECT_THAT(MergeShares(weighting, {{tokens, 7}}), ElementsAre(1.0f));
    }
  }
}

TEST(MergeSharesTest, AddUpToOneAndKeepOrder) {
  for (const Outer::Weighting weighting : kWeightings) {
    std::vector<Effort> efforts;
    for (uint64_t i = 1; i <= 37; ++i) efforts.push_back({i * i * 1000, 50});
    const std::vector<float> shares = MergeShares(weighting, efforts);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  }
}

TEST(MergeSharesTest, ScaleOfTheEffortsDoesNotMatter) {
  for (const Outer::Weighting weighting : kWeightings) {
    EXPECT_EQ(
        MergeShares(weighting, {{3 << 20, 64}, {5 << 20, 128}, {9 << 20, 64}}),
        MergeShares(weighting, {{3, 8}, {5, 16}, {9, 8}}));
  }
}

TEST(MergeSharesTest, NoTokensNoShare) {
  EXPECT_THAT(MergeShares(Outer::TOKENS, {{0, 0}, {10, 1}}),
              ElementsAre(0.0f, 1.0f));
  EXPECT_THAT(MergeShares(Outer::TOKENS_SQUARED_PER_STEP, {{0, 1}, {10, 1}}),
              ElementsAre(0.0f, 1.0f));
}

TEST(MergeSharesTest, NoWeightsNoShares) {
  for (const Outer::Weighting weighting : kWeightings) {
    EXPECT_THAT(MergeShares(weighting, {}), IsEmpty());
  }
  EXPECT_THAT(MergeShares(Outer::TOKENS, {{0, 3}, {0, 4}}), Each(IsNan()));
  EXPECT_THAT(MergeShares(Outer::TOKENS_SQUARED_PER_STEP, {{5, 0}}),
              ElementsAre(IsNan()));
}

}  // namespace
}  // namespace causeway
