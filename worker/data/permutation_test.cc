// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/permutation.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

std::vector<int64_t> Images(int64_t size, uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<int64_t> images;
  for (int64_t i = 0; i < size; ++i) images.push_back(permutation(i));
  return images;
}

TEST(PermutationTest, EverySizeIsABijection) {
  for (int64_t size = 1; size <= 1100; ++size) {
    std::vector<bool> seen(size);
    for (const int64_t image : Images(size, size * 31)) {
      ASSERT_GE(image, 0);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << "size " << size << ", image " << image;
      seen[image] = true;
    }
  }
}

TEST(PermutationTest, LargeRangesStayInRange) {
  const int64_t size = (int64_t{1} << 62) - 12345;
  const Permutation permutation(size, 5);
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t image = permutation(size - 1 - i);
    ASSERT_GE(image, 0);
    ASSERT_LT(image, size);
  }
}

TEST(PermutationTest, KeysGiveUnrelatedOrders) {
  const std::vector<int64_t> a = Images(1000, 1);
  const std::vector<int64_t> b = Images(1000, 2);
  int fixed = 0;
  for (size_t i = 0; i < a.size(); ++i) fixed += a[i] == b[i];
  // The number of agreements of two random orders is Poisson with mean 1.
  EXPECT_LT(fixed, 8);
}

// Every element lands on every position equally often: chi-squared with the 36
// cells of a 6 x 6 table (25 degrees of freedom; 60 is beyond the 99.99th
// percentile). The keys are consecutive on purpose.
TEST(PermutationTest, PositionsAreUniformOverKeys) {
  constexpr int kSize = 6;
  constexpr int kKeys = 60000;
  std::vector<int> counts(kSize * kSize);
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, key);
    for (int i = 0; i < kSize; ++i) ++counts[i * kSize + permutation(i)];
  }
  const double expected = double{kKeys} / kSize;
  double chi_squared = 0;
  for (const int count : counts) {
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 60);
}

// A change here would reorder the data of existing runs.
TEST(PermutationTest, OrderIsFrozen) {
  EXPECT_THAT(Images(10, 42),
              testing::ElementsAre(6, 2, 4, 5, 0, 9, 1, 7, 3, 8));
}

// These are the first outputs of SplitMix64 with seed 1234567, as published
// with the generator: its state advances by the golden ratio before each
// output.
TEST(MixBitsTest, IsSplitMix64) {
  EXPECT_EQ(MixBits(1234567 + 0x9e3779b97f4a7c15), 6457827717110365317u);
  EXPECT_EQ(MixBits(1234567 + 2 * 0x9e3779b97f4a7c15), 3203168211198807973u);
}

}  // namespace
}  // namespace causeway
