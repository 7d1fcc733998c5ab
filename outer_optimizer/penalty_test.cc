// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/penalty.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::ElementsAreArray;

TEST(PenalizedSharesTest, LongContributionsCountInverselyToTheirLength) {
  // The median is 2; the weights are 2, 2 and 4 * 2 / 8 parts.
  EXPECT_THAT(PenalizedShares(1, {0.25f, 0.25f, 0.5f}, {1, 2, 8}),
              ElementsAre(DoubleEq(0.4), DoubleEq(0.4), DoubleEq(0.2)));
  EXPECT_THAT(
      PenalizedShares(2, {0.25f, 0.25f, 0.5f}, {1, 2, 8}),
      ElementsAre(DoubleEq(8.0 / 17), DoubleEq(8.0 / 17), DoubleEq(1.0 / 17)));
}

TEST(PenalizedSharesTest, DoNotDependOnTheUnit) {
  const auto want = PenalizedShares(3, {0.5f, 0.25f, 0.25f}, {1, 3, 2});
  EXPECT_EQ(
      PenalizedShares(3, {0.5f, 0.25f, 0.25f}, {0x1p40, 3 * 0x1p40, 0x1p41}),
      want);
}

TEST(PenalizedSharesTest, KeepTheirBitsWhereNothingIsUnusual) {
  const std::vector<float> shares = {0.1f, 0.2f, 0.7f};
  EXPECT_THAT(PenalizedShares(4, shares, {0.3, 0.3, 0.3}),
              ElementsAreArray(shares));
  EXPECT_THAT(PenalizedShares(0, shares, {1, 2, 3}), ElementsAreArray(shares));
  EXPECT_THAT(PenalizedShares(4, shares, {0, 0, 0}), ElementsAreArray(shares));
  EXPECT_THAT(PenalizedShares(4, {1}, {5}), ElementsAre(1));
}

TEST(PenalizedSharesTest, TheMedianIgnoresZeros) {
  // The median of 2 and 4 is 3; zeros keep their share.
  EXPECT_THAT(PenalizedShares(1, {0.25f, 0.25f, 0.25f, 0.25f}, {0, 0, 2, 4}),
              ElementsAre(DoubleEq(4.0 / 15), DoubleEq(4.0 / 15),
                          DoubleEq(4.0 / 15), DoubleEq(0.2)));
  // A contribution without a share does not count either: the median is 4.
  EXPECT_THAT(PenalizedShares(1, {0, 1}, {1, 4}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace causeway
