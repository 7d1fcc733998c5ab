// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "common/os/machine.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(ProcessMemoryTest, WhatIsFreedCountsForThePeakOnly) {
  constexpr uint64_t kBytes = 128 << 20;
  // The kernel counts pages in batches.
  constexpr uint64_t kSlack = 4 << 20;
  const uint64_t before = ResidentBytes();
  EXPECT_GT(before, 0);
  EXPECT_LT(before, uint64_t{64} << 30);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 'x', kBytes);
  EXPECT_GT(ResidentBytes(), before + kBytes - kSlack);
  EXPECT_LT(ResidentBytes(), before + kBytes + kSlack);
  munmap(memory, kBytes);
  EXPECT_LT(ResidentBytes(), before + kSlack);
  EXPECT_GT(PeakResidentBytes(), kBytes);
}

}  // namespace
}  // namespace causeway
