// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests ranks whose parts are on a device. Skipped where there is none.
#include <memory>
#include <utility>
#include <vector>

#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/replica/device/device_fragment_part.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/device/part_device.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/testing/replica_ranks.h"

namespace causeway {
namespace {

std::unique_ptr<DeviceQueue> NewQueue() {
  return NewCudaQueue(0, QueuePriority::kLow).value();
}

TEST(ReplicaRanksCudaTest, RanksDoWhatOneDoesInHostMemory) {
  SKIP_WITHOUT_CUDA_DEVICE();
  std::vector<std::unique_ptr<PartDevice>> devices;
  // Masters stay in host memory, where the test trains: a device can access
  // both.
  const auto parts = [&](int /*rank*/) -> FragmentPartFactory {
    auto device = PartDevice::Create(
        {.training = NewQueue(), .background = NewQueue(), .piece_strips = 2});
    EXPECT_OK(device);
    devices.push_back(*std::move(device));
    return [device = devices.back().get()](
               uint32_t /*fragment*/, const FragmentShare& share,
               const ReplicaOptions& options, const float* masters) {
      return MakeDeviceFragmentPart(share, options, masters, device);
    };
  };
  ExpectRanksDoWhatOneDoes({1, 3}, {.parts = parts});
}

}  // namespace
}  // namespace causeway
