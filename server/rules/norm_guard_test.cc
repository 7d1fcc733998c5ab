// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/norm_guard.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(NormGuard, LetsFiniteNormsPassUntilItKnowsWhatIsUsual) {
  NormGuard guard(2);
  for (size_t i = 0; i < NormGuard::kLeast; ++i) {
    EXPECT_THAT(guard.Objection({1e30, 10}), IsEmpty());
    guard.Merged({1, 10});
  }
  EXPECT_THAT(guard.Objection({2, 10}), IsEmpty());
  EXPECT_THAT(guard.Objection({2.1, 10}),
              HasSubstr("2.1, is more than 2 times"));
  EXPECT_THAT(guard.Objection({0, 10}), IsEmpty());
}

TEST(NormGuard, IsNotMovedByAFewOutliers) {
  NormGuard guard(10);
  for (int i = 0; i < 6; ++i) guard.Merged({1, 10});
  for (int i = 0; i < 4; ++i) guard.Merged({1e6, 10});
  EXPECT_THAT(guard.Objection({11, 10}),
              HasSubstr("median of the last 10 merged"));
}

TEST(NormGuard, FollowsTheRun) {
  NormGuard guard(10);
  for (size_t i = 0; i < NormGuard::kHistory; ++i) guard.Merged({100, 10});
  for (size_t i = 0; i < NormGuard::kHistory; ++i) guard.Merged({1, 10});
  EXPECT_THAT(guard.Objection({50, 10}), HasSubstr("times the median"));
}

TEST(NormGuard, AllowsForLongWindows) {
  NormGuard guard(10);
  for (size_t i = 0; i < NormGuard::kLeast; ++i) guard.Merged({1, 100});
  EXPECT_THAT(guard.Objection({25, 300}), IsEmpty());
  EXPECT_THAT(guard.Objection({31, 300}),
              HasSubstr("a window of 3.0 times the length"));
  EXPECT_THAT(guard.Objection({11, 50}), HasSubstr("more than 10 times"));
}

TEST(NormGuard, NeverLetsPassWhatIsNotFinite) {
  const NormGuard guard(0);
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::max(), 10}),
              IsEmpty());
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::infinity(), 10}),
              HasSubstr("not finite"));
  EXPECT_THAT(guard.Objection({std::numeric_limits<double>::quiet_NaN(), 10}),
              HasSubstr("not finite"));
}

}  // namespace
}  // namespace causeway
