// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The suite of device_part_suite.h on a device that does everything as late as
// it may; and what it costs there.
#include "worker/replica/device/device_fragment_part.h"

#include <memory>
#include <utility>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/replica/device/deferred_queue.h"
#include "worker/replica/device/device_part_suite.h"

namespace causeway {
namespace {

// All tests share it: memory must be given back by each.
DeferredDevice& SharedDevice() {
  static const std::unique_ptr<DeferredDevice>& device =
      *new std::unique_ptr<DeferredDevice>(NewDeferredDevice());
  return *device;
}

class DeviceMemoryTest : public testing::Test {
 protected:
  std::unique_ptr<PartDevice> NewDevice(uint64_t piece_strips) {
    auto device = PartDevice::Create({.training = gpu_->NewQueue(),
                                      .background = gpu_->NewQueue(),
                                      .piece_strips = piece_strips});
    EXPECT_OK(device.status());
    return *std::move(device);
  }

  const std::unique_ptr<DeferredDevice> gpu_ = NewDeferredDevice();
};

TEST_F(DeviceMemoryTest, OneSnapshotIsOnTheDeviceAndTheOthersAreNot) {
  const std::unique_ptr<PartDevice> device = NewDevice(1);
  ASSERT_OK(device->ReserveSnapshot(1000));
  ASSERT_OK(device->ReserveSnapshot(5000));
  ASSERT_OK(device->ReserveSnapshot(300));
  const int64_t bytes = gpu_->device_bytes();
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease first, device->TakeSnapshot(300));
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease second, device->TakeSnapshot(5000));
  EXPECT_FALSE(first.is_pinned());
  EXPECT_TRUE(second.is_pinned());
  first.Release();
  ASSERT_OK_AND_ASSIGN(PartDevice::Lease third, device->TakeSnapshot(5000));
  EXPECT_FALSE(third.is_pinned());
  EXPECT_EQ(gpu_->device_bytes(), bytes);
}

TEST_F(DeviceMemoryTest, NothingNeedsNone) {
  const std::unique_ptr<PartDevice> device = NewDevice(1);
  ASSERT_OK(device->ReserveSnapshot(1000));
  const int64_t allocations = gpu_->allocations();
  ASSERT_OK_AND_ASSIGN(const auto nothing, device->TakeSnapshot(0));
  EXPECT_TRUE(nothing.empty());
  ASSERT_OK_AND_ASSIGN(const auto snapshot, device->TakeSnapshot(1000));
  EXPECT_FALSE(snapshot.is_pinned());
  ASSERT_OK(device->TakePinned(0));
  EXPECT_EQ(gpu_->allocations(), allocations);
}

TEST_F(DeviceMemoryTest, IsUsedAgain) {
  const std::unique_ptr<PartDevice> device = NewDevice(1);
  const void* memory = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto large, device->TakePinned(10'000));
    ASSERT_OK_AND_ASSIGN(const auto small, device->TakePinned(1000));
    memory = small.bytes();
  }
  const int64_t allocations = gpu_->allocations();
  ASSERT_OK_AND_ASSIGN(const auto again, device->TakePinned(900));
  EXPECT_EQ(again.bytes(), memory) << "the smallest that is large enough";
  ASSERT_OK(device->TakePinned(5000));
  EXPECT_EQ(gpu_->allocations(), allocations);
}

TEST_F(DeviceMemoryTest, SaysWhatDoesNotFit) {
  gpu_->set_device_limit(1000);
  EXPECT_THAT(PartDevice::Create({.training = gpu_->NewQueue(),
                                  .background = gpu_->NewQueue()}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(gpu_->device_bytes(), 0);
}

}  // namespace

std::unique_ptr<DeviceQueue> NewQueueUnderTest() {
  return SharedDevice().NewQueue();
}

}  // namespace causeway
