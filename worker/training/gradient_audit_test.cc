// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/gradient_audit.h"

#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/culprit.h"

namespace causeway {
namespace {

TEST(GradientAuditTest, RanksThatAgreeAreGood) {
  EXPECT_OK(CompareRanks({{"p", "g"}}));
  EXPECT_OK(CompareRanks({{"p", "g"}, {"p", "g"}, {"p", "g"}}));
}

TEST(GradientAuditTest, OneAgainstAllOthersIsBlamed) {
  const absl::Status status =
      CompareRanks({{"p", "g"}, {"p", "g"}, {"p", "other"}, {"p", "g"}});
  EXPECT_THAT(status, IsDataLoss("rank 2 computes wrong numbers",
                                 "another gradient of the same parameters"));
  ASSERT_TRUE(RankTroubleOf(status).has_value());
  EXPECT_EQ(RankTroubleOf(status)->kind(), v1::RankTrouble::CORRUPT_RANK);
  EXPECT_EQ(RankTroubleOf(status)->rank(), 2);
  EXPECT_TRUE(IsFoundByAudit(status));
}

// Gradients at different parameters cannot be compared.
TEST(GradientAuditTest, ParametersAreComparedFirst) {
  const absl::Status status =
      CompareRanks({{"p", "g"}, {"q", "h"}, {"p", "i"}});
  EXPECT_THAT(status, IsDataLoss("rank 1 computes", "other parameters"));
}

TEST(GradientAuditTest, BlamesNoRankWithoutAMajority) {
  for (const std::vector<AuditedRank>& ranks :
       {std::vector<AuditedRank>{{"p", "g"}, {"p", "h"}},
        {{"p", "g"}, {"p", "g"}, {"p", "h"}, {"p", "h"}},
        {{"p", "g"}, {"p", "h"}, {"p", "i"}}}) {
    const absl::Status status = CompareRanks(ranks);
    EXPECT_THAT(status, IsDataLoss("which of them are wrong is not known"));
    EXPECT_FALSE(RankTroubleOf(status).has_value());
    EXPECT_TRUE(IsFoundByAudit(status));
  }
  EXPECT_THAT(CompareRanks({{"p", "g"}, {"p", "h"}, {"p", "g"}, {"p", "h"}}),
              IsDataLoss("{0, 2} {1, 3};"));
}

}  // namespace
}  // namespace causeway
