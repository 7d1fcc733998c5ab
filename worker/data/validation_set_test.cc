// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/testing/positions_dataset.h"

namespace causeway {
namespace {

TEST(ValidationSetTest, LimitSpreadsOverAllWindowsWithoutRepeats) {
  const Dataset dataset = PositionsDataset(1);
  const ValidationSet whole(&dataset, 0);
  ASSERT_EQ(whole.size(), dataset.split.validation_windows());
  const ValidationSet limited(&dataset, 10);
  ASSERT_EQ(limited.size(), 10);
  std::set<int64_t> begins;
  for (int64_t i = 0; i < 10; ++i) begins.insert(limited.WindowBegin(i));
  EXPECT_EQ(begins.size(), 10u);
  EXPECT_EQ(*begins.begin(), whole.WindowBegin(0));
  EXPECT_GT(*begins.rbegin(), kTestTokens * 8 / 10);
  EXPECT_EQ(ValidationSet(&dataset, 1 << 20).size(), whole.size());
}

TEST(ValidationSetTest, RowsAreTheWindowsInOrder) {
  const Dataset dataset = PositionsDataset(1);
  const ValidationSet validation(&dataset, 0);
  std::vector<int32_t> tokens(2 * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  validation.Fill(3, absl::MakeSpan(tokens), absl::MakeSpan(targets));
  for (int i = 0; i < kTestSequenceLength; ++i) {
    EXPECT_EQ(tokens[i], validation.WindowBegin(3) + i);
    EXPECT_EQ(tokens[kTestSequenceLength + i], validation.WindowBegin(4) + i);
    EXPECT_EQ(targets[kTestSequenceLength + i],
              tokens[kTestSequenceLength + i] + 1);
  }
}

}  // namespace
}  // namespace causeway
