// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/mixture.h"

#include <cmath>
#include <limits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(MixtureTest, EveryPrefixHasTheShares) {
  for (const std::vector<double>& weights : {std::vector<double>{1},
                                             {1, 1},
                                             {3, 1},
                                             {0.7, 0.2, 0.1},
                                             {500, 250, 249, 1}}) {
    ASSERT_OK_AND_ASSIGN(const Mixture mixture, Mixture::Create(weights));
    double sum = 0;
    for (const double weight : weights) sum += weight;
    std::vector<int64_t> counts(weights.size());
    for (int64_t number = 0; number < 3 * Mixture::kCycle; ++number) {
      const Mixture::Place place = mixture.At(number);
      // A source's sequences come one after the other, without gaps.
      ASSERT_EQ(place.index, counts[place.source]++);
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(counts[i]),
                    weights[i] / sum * static_cast<double>(number + 1), 1.5)
            << number;
      }
    }
  }
}

TEST(MixtureTest, RefusesWeightsThatMeanNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights : {std::vector<double>{},
                                             {0},
                                             {1, -1},
                                             {1, infinity},
                                             {1, NAN},
                                             {1e4, 1}}) {
    EXPECT_THAT(Mixture::Create(weights), IsInvalidArgument("weight"));
  }
}

}  // namespace
}  // namespace causeway
