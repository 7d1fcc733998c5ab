// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/huge_pages.h"

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"

namespace causeway {
namespace {

uintptr_t Address(const LargeVector<float>& values) {
  return reinterpret_cast<uintptr_t>(values.data());
}

TEST(HugePagesTest, ArraysAreAligned) {
  for (const size_t values : {1, 15, 17, 100'000}) {
    EXPECT_EQ(Address(LargeVector<float>(values)) % 64, 0) << values;
  }
  const size_t huge = kHugePageBytes / sizeof(float);
  for (const size_t values : {huge, huge + 1, 3 * huge}) {
    EXPECT_EQ(Address(LargeVector<float>(values)) % kHugePageBytes, 0)
        << values;
  }
}

TEST(HugePagesTest, AVectorGrowsWithItsValues) {
  LargeVector<float> values;
  for (int i = 0; i < 1'000'000; ++i) values.push_back(static_cast<float>(i));
  values.resize(2'000'000, 3.0f);
  EXPECT_EQ(values[999'999], 999'999.0f);
  EXPECT_EQ(std::count(values.begin() + 1'000'000, values.end(), 3.0f),
            1'000'000);
}

}  // namespace
}  // namespace causeway
