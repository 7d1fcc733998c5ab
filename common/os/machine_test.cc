// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/machine.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
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

TEST(MachineTest, KnowsTheLimitOfTheShell) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = uint64_t{1} << 27;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const absl::StatusOr<uint64_t> memory = MachineMemoryBytes();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_THAT(memory, IsOkAndHolds(uint64_t{1} << 27));
}

TEST(MachineTest, KnowsTheLimitsOfControlGroups) {
  const auto memory_with = [](const char* groups, const char* folder,
                              const char* name, const char* limit) {
    const auto made = TemporaryDirectory::Make("machine");
    EXPECT_OK(made);
    const std::string root = made->path();
    for (const std::string& each :
         {std::string("/proc/self"), std::string("/sys/fs/cgroup") + folder}) {
      std::filesystem::create_directories(root + each);
    }
    std::ofstream(root + "/proc/self/cgroup") << groups;
    std::ofstream(root + "/sys/fs/cgroup" + folder + "/" + name) << limit;
    return *MachineMemoryBytes(root);
  };
  const uint64_t all = memory_with("", "", "memory.max", "1000");
  EXPECT_GT(all, uint64_t{1} << 27);
  constexpr char kOld[] = "memory.limit_in_bytes";
  for (const char* const folder : {"", "/a", "/a/b"}) {
    EXPECT_EQ(memory_with("0::/a/b\n", folder, "memory.max", "1000\n"), 1000)
        << folder;
    EXPECT_EQ(
        memory_with("3:pids:/\n2:cpu,memory:/a/b\n",
                    (std::string("/memory") + folder).c_str(), kOld, "2000\n"),
        2000)
        << folder;
  }
  EXPECT_EQ(memory_with("0::/\n", "", "memory.max", "3000\n"), 3000);
  EXPECT_EQ(memory_with("0::/a\n", "/a", "memory.max", "max\n"), all);
  EXPECT_EQ(memory_with("0::/a\n", "/other", "memory.max", "1000\n"), all);
  EXPECT_EQ(memory_with("2:pids:/a\n", "/memory/a", kOld, "1000\n"), all);
  EXPECT_EQ(memory_with("nonsense\n0::nonsense\n", "", kOld, "1000\n"), all);
}

TEST(MachineTest, CountsKillsForLackOfMemory) {
  const auto made = TemporaryDirectory::Make("machine");
  ASSERT_OK(made);
  EXPECT_EQ(OutOfMemoryKills(made->path()), 0);
  std::filesystem::create_directories(made->path() + "/proc");
  std::ofstream(made->path() + "/proc/vmstat")
      << "nr_free_pages 5000\noom_kill 3\ndrop_pagecache 1\n";
  EXPECT_EQ(OutOfMemoryKills(made->path()), 3);
}

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
