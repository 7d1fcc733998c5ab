// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/machine.h"

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(MachineTest, SaysWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(const uint64_t memory, MachineMemoryBytes());
  EXPECT_GT(memory, uint64_t{1} << 27);
  EXPECT_LT(memory, uint64_t{1} << 50);
  ASSERT_OK_AND_ASSIGN(const DiskSpace disk, FindDiskSpace(testing::TempDir()));
  EXPECT_GT(disk.free, uint64_t{1} << 20);
  EXPECT_GT(disk.total, disk.free);
  EXPECT_THAT(FindDiskSpace(testing::TempDir() + "/missing").status(),
              IsNotFound());
}

}  // namespace
}  // namespace causeway
