// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/buffer_pool.h"

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using ::testing::IsEmpty;

TEST(BufferPoolTest, ABufferThatIsGivenBackIsUsedAgainForItsSizeOnly) {
  BufferPool pool(10'000);
  PooledBuffer first = pool.Take(1000);
  EXPECT_EQ(first.bytes.size(), 1000u);
  const char* const memory = first.bytes.data();
  EXPECT_NE(pool.Take(1000).bytes.data(), memory) << "it is in use";
  first = {};
  // Two buffers of this size are idle now, in either order.
  const PooledBuffer second = pool.Take(1000);
  const PooledBuffer third = pool.Take(1000);
  EXPECT_TRUE(second.bytes.data() == memory || third.bytes.data() == memory);
  EXPECT_EQ(pool.Take(1001).bytes.size(), 1001u);
}

TEST(BufferPoolTest, AnyCopyOfTheOwnerKeepsTheBuffer) {
  BufferPool pool(10'000);
  PooledBuffer buffer = pool.Take(1000);
  const char* const memory = buffer.bytes.data();
  std::shared_ptr<const void> owner = buffer.owner;
  buffer = {};
  EXPECT_NE(pool.Take(1000).bytes.data(), memory);
}

TEST(BufferPoolTest, ABufferMayOutliveItsPool) {
  PooledBuffer buffer;
  {
    BufferPool pool(1 << 30);
    buffer = pool.Take(5 << 20);
  }
  std::memset(buffer.bytes.data(), 1, buffer.bytes.size());
}

// Returns the bytes of this process's memory that no file has.
uint64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "RssAnon:") continue;
    uint64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

// Returns the number of this process's mappings of files that are or were in
// `folder`.
int Mappings(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += absl::StrContains(line, folder + "/") ? 1 : 0;
  }
  return found;
}

TEST(BufferPoolTest, KeepsAtMostItsCapacity) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("buffers"));
  BufferPool pool(2500, directory.path());
  std::vector<PooledBuffer> out;
  for (int i = 0; i < 4; ++i) out.push_back(pool.Take(1000));
  EXPECT_EQ(Mappings(directory.path()), 4);
  out.clear();
  EXPECT_EQ(Mappings(directory.path()), 2);
  for (int i = 0; i < 3; ++i) out.push_back(pool.Take(1000));
  EXPECT_EQ(Mappings(directory.path()), 3) << "two were used again";
}

// The newest version of a fragment lives longer than the pool of the start that
// made it.
TEST(BufferPoolTest, ABufferThatOutlivesItsPoolKeepsNothingElse) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("buffers"));
  PooledBuffer buffer;
  {
    BufferPool pool(UINT64_MAX, directory.path());
    buffer = pool.Take(1 << 20);
    pool.Take(2 << 20);
    EXPECT_EQ(Mappings(directory.path()), 2) << "one of them is idle";
  }
  EXPECT_EQ(Mappings(directory.path()), 1);
  buffer = {};
  EXPECT_EQ(Mappings(directory.path()), 0);
}

TEST(BufferPoolTest, ABufferInAFileTakesNoMemoryOfItsOwn) {
  constexpr uint64_t kBytes = 64 << 20;
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("buffers"));
  BufferPool pool(kBytes, directory.path());
  const uint64_t before = AnonymousBytes();
  PooledBuffer buffer = pool.Take(kBytes);
  std::memset(buffer.bytes.data(), 1, kBytes);
  EXPECT_LT(AnonymousBytes(), before + kBytes / 4);
  EXPECT_THAT(ListDirectory(directory.path()), IsOkAndHolds(IsEmpty()));
  const char* const memory = buffer.bytes.data();
  buffer = {};
  EXPECT_EQ(pool.Take(kBytes).bytes.data(), memory);
}

TEST(BufferPoolTest, WithoutRoomForAFileABufferIsInMemory) {
  BufferPool pool(0, "/nowhere");
  const PooledBuffer buffer = pool.Take(1000);
  std::memset(buffer.bytes.data(), 1, 1000);
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
  BufferPool pool(4000);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&pool, id] {
      for (int i = 0; i < 2000; ++i) {
        const PooledBuffer buffer = pool.Take(1000);
        std::memset(buffer.bytes.data(), id, 1000);
        for (const char byte : buffer.bytes) ASSERT_EQ(byte, id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace causeway
