// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/snapshot_pool.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/os/huge_pages.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(SnapshotPoolTest, MemoryIsUsedAgainForTheSameSizeAndDownToHalfOfIt) {
  SnapshotPool pool;
  LargeVector<float> memory = pool.Take(1000);
  const float* const place = memory.data();
  for (const size_t size : {1000, 500, 1000}) {
    pool.Return(std::move(memory));
    memory = pool.Take(size);
    EXPECT_EQ(memory.size(), size);
    EXPECT_EQ(memory.data(), place);
  }
  pool.Return(std::move(memory));
  for (const size_t size : {1001, 499, 0}) {
    memory = pool.Take(size);
    EXPECT_EQ(memory.size(), size);
    EXPECT_NE(memory.data(), place);
  }
}

TEST(SnapshotPoolTest, TheSmallestMemoryThatFitsIsUsed) {
  SnapshotPool pool;
  LargeVector<float> large = pool.Take(1500);
  LargeVector<float> small = pool.Take(1000);
  const float* const place = small.data();
  pool.Return(std::move(small));
  pool.Return(std::move(large));
  EXPECT_EQ(pool.Take(900).data(), place);
}

// Each round, a part takes memory for its snapshot and for its next anchor.
TEST(SnapshotPoolTest, SmallPartsDoNotEndUpInTheMemoryOfLargeOnes) {
  std::vector<size_t> sizes(9, size_t{1} << 14);
  sizes[0] = size_t{1} << 20;
  SnapshotPool pool;
  // The capacities of all vectors, by their places.
  std::map<const float*, size_t> capacities;
  const auto take = [&](size_t size) {
    LargeVector<float> memory = pool.Take(size);
    capacities[memory.data()] = memory.capacity();
    return memory;
  };
  std::vector<LargeVector<float>> anchors;
  size_t sum = 0;
  for (const size_t size : sizes) {
    anchors.push_back(take(size));
    sum += size;
  }
  for (int round = 0; round < 30; ++round) {
    for (size_t part = 0; part < sizes.size(); ++part) {
      LargeVector<float> snapshot = take(sizes[part]);
      LargeVector<float> update = take(sizes[part]);
      std::swap(anchors[part], update);
      pool.Return(std::move(update));
      pool.Return(std::move(snapshot));
    }
  }
  size_t total = 0;
  for (const auto& [place, capacity] : capacities) total += capacity;
  EXPECT_LE(total, sum + 3 * *std::max_element(sizes.begin(), sizes.end()));
}

}  // namespace
}  // namespace causeway
