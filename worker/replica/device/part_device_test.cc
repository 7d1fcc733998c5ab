// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/part_device.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// The memory that a device has handed out.
struct Memory {
  std::map<void*, size_t> of_device;
  int64_t allocations = 0;
  size_t limit = SIZE_MAX;

  size_t device_bytes() const {
    size_t bytes = 0;
    for (const auto& [memory, size] : of_device) bytes += size;
    return bytes;
  }
};

// A queue that only allocates.
class FakeQueue : public DeviceQueue {
 public:
  explicit FakeQueue(Memory* memory) : memory_(*memory) {}

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    ++memory_.allocations;
    if (kind == MemoryKind::kPinned) return std::malloc(bytes);
    if (memory_.device_bytes() + bytes > memory_.limit) {
      return absl::ResourceExhaustedError("the device is full");
    }
    void* const memory = std::malloc(1);
    memory_.of_device[memory] = bytes;
    return memory;
  }
  void Free(MemoryKind kind, void* memory) override {
    EXPECT_EQ(memory_.of_device.erase(memory), kind == MemoryKind::kDevice);
    std::free(memory);
  }
  void Copy(const void*, size_t, void*) override {}
  void Add(const float*, uint64_t, float*) override {}
  void Subtract(const float*, uint64_t, float*) override {}
  void CopyRuns(const DeviceRun*, uint64_t, uint64_t, uint64_t, float*, float*,
                bool) override {}
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  Memory& memory_;
};

class PartDeviceTest : public testing::Test {
 protected:
  ~PartDeviceTest() override { EXPECT_EQ(memory_.device_bytes(), 0); }

  absl::StatusOr<std::unique_ptr<PartDevice>> Create(
      bool reserves = false, bool anchors_on_device = false) {
    return PartDevice::Create(
        {.training = std::make_unique<FakeQueue>(&memory_),
         .background = std::make_unique<FakeQueue>(&memory_),
         .anchors_on_device = anchors_on_device,
         .reserves = reserves,
         .piece_strips = 1});
  }
  std::unique_ptr<PartDevice> NewDevice() {
    auto device = Create();
    EXPECT_OK(device.status());
    return *std::move(device);
  }

  Memory memory_;
};

TEST_F(PartDeviceTest, OneSnapshotIsOnTheDeviceAndTheOthersAreNot) {
  const std::unique_ptr<PartDevice> device = NewDevice();
  ASSERT_OK(device->ReserveSnapshot(1000));
  ASSERT_OK(device->ReserveSnapshot(5000));
  ASSERT_OK(device->ReserveSnapshot(300));
  const size_t bytes = memory_.device_bytes();
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease first, device->TakeSnapshot(300));
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease second, device->TakeSnapshot(5000));
  EXPECT_FALSE(first.is_pinned());
  EXPECT_TRUE(second.is_pinned());
  first.Release();
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease third, device->TakeSnapshot(5000));
  EXPECT_FALSE(third.is_pinned());
  EXPECT_TRUE(device->is_shared(third));
  EXPECT_FALSE(device->is_shared(second));
  EXPECT_EQ(memory_.device_bytes(), bytes);
}

TEST_F(PartDeviceTest, SnapshotsAreWhereAnchorsAre) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       Create(/*reserves=*/false, /*anchors_on_device=*/true));
  const size_t bytes = memory_.device_bytes();
  ASSERT_OK(device->ReserveSnapshot(1000));
  EXPECT_EQ(memory_.device_bytes(), bytes);
  ASSERT_OK_AND_ASSIGN(const auto first, device->TakeSnapshot(1000));
  ASSERT_OK_AND_ASSIGN(const auto second, device->TakeSnapshot(1000));
  for (const PartDevice::Lease* lease : {&first, &second}) {
    EXPECT_FALSE(lease->is_pinned());
    EXPECT_FALSE(device->is_shared(*lease));
  }
}

TEST_F(PartDeviceTest, AnchorsArePinnedIfTheDeviceIsFull) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       Create(/*reserves=*/false, /*anchors_on_device=*/true));
  memory_.limit = memory_.device_bytes() + 4000;
  ASSERT_OK_AND_ASSIGN(const auto first, device->TakeAnchor(1000));
  ASSERT_OK_AND_ASSIGN(const auto second, device->TakeAnchor(1000));
  ASSERT_OK_AND_ASSIGN(const auto snapshot, device->TakeSnapshot(1000));
  EXPECT_FALSE(first.is_pinned());
  EXPECT_TRUE(second.is_pinned());
  EXPECT_TRUE(snapshot.is_pinned());
}

TEST_F(PartDeviceTest, EmptyLeasesTakeNoMemory) {
  const std::unique_ptr<PartDevice> device = NewDevice();
  ASSERT_OK(device->ReserveSnapshot(1000));
  const int64_t allocations = memory_.allocations;
  ASSERT_OK_AND_ASSIGN(const auto nothing, device->TakeSnapshot(0));
  EXPECT_TRUE(nothing.empty());
  ASSERT_OK_AND_ASSIGN(const auto snapshot, device->TakeSnapshot(1000));
  EXPECT_FALSE(snapshot.is_pinned());
  ASSERT_OK(device->TakePinned(0));
  EXPECT_EQ(memory_.allocations, allocations);
}

TEST_F(PartDeviceTest, IsUsedAgain) {
  const std::unique_ptr<PartDevice> device = NewDevice();
  const void* memory = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto large, device->TakePinned(10'000));
    ASSERT_OK_AND_ASSIGN(const auto small, device->TakePinned(1000));
    memory = small.bytes();
  }
  const int64_t allocations = memory_.allocations;
  ASSERT_OK_AND_ASSIGN(const auto again, device->TakePinned(900));
  EXPECT_EQ(again.bytes(), memory) << "the smallest that is large enough";
  ASSERT_OK(device->TakePinned(5000));
  EXPECT_EQ(memory_.allocations, allocations);
}

TEST_F(PartDeviceTest, LeasesOfReservedSizesTakeNoMemory) {
  for (const bool reserves : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const auto device, Create(reserves));
    for (const size_t bytes : {4000, 900, 4100, 0}) {
      ASSERT_OK(device->ReservePinned(bytes));
    }
    ASSERT_OK(device->ReserveAnchor(1000));
    const int64_t allocations = memory_.allocations;
    {
      // Small leases come before large ones.
      ASSERT_OK_AND_ASSIGN(const auto a, device->TakePinned(800));
      ASSERT_OK_AND_ASSIGN(const auto b, device->TakePinned(3900));
      ASSERT_OK_AND_ASSIGN(const auto c, device->TakeAnchor(1000));
      ASSERT_OK_AND_ASSIGN(const auto d, device->TakePinned(4100));
    }
    EXPECT_EQ(memory_.allocations - allocations, reserves ? 0 : 4);
  }
}

TEST_F(PartDeviceTest, SaysWhatDoesNotFit) {
  memory_.limit = 1000;
  EXPECT_THAT(Create(), IsResourceExhausted());
}

}  // namespace
}  // namespace causeway
