// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The suite of device_part_suite.h on a GPU. Skipped where there is none.
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/replica/device/cuda_queue.h"
#include "worker/replica/device/device_part_suite.h"

namespace causeway {
namespace {

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue() {
  return NewCudaQueue(0, QueuePriority::kLow);
}

TEST(CudaQueueTest, SaysWhyThereIsNoDevice) {
  if (NewQueue().ok()) GTEST_SKIP() << "there is one";
  EXPECT_THAT(NewQueue(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(CudaQueueTest, SaysHowMuchMemoryThereIsNot) {
  const auto queue = NewQueue();
  if (!queue.ok()) GTEST_SKIP() << queue.status();
  EXPECT_THAT((*queue)->Allocate(MemoryKind::kDevice, size_t{1} << 50),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       testing::HasSubstr("of the device's memory")));
  EXPECT_OK((*queue)->Synchronize());
}

}  // namespace

std::unique_ptr<DeviceQueue> NewQueueUnderTest() {
  absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = NewQueue();
  return queue.ok() ? *std::move(queue) : nullptr;
}

}  // namespace causeway
