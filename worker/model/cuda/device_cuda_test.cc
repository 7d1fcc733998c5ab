// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the errors for devices that do not exist or have too little memory.
#include <cstddef>
#include <memory>

#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/ops_cuda.h"

namespace causeway {
namespace {

TEST(DeviceCudaTest, SaysSoIfThereIsNoDriver) {
  if (CudaDevice().ok()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(MakeCudaOps(0), IsFailedPrecondition("looking for CUDA devices"));
}

TEST(DeviceCudaTest, SaysHowManyDevicesThereAre) {
  SKIP_WITHOUT_CUDA_DEVICE();
  EXPECT_THAT(MakeCudaOps(1000), IsInvalidArgument("no device cuda:1000"));
}

TEST(DeviceCudaTest, AnImpossibleAllocationIsRefusedAndHarmsNothing) {
  SKIP_WITHOUT_CUDA_DEVICE();
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Ops> ops, MakeCudaOps(0));
  EXPECT_THAT(ops->Allocate(size_t{1} << 50),
              IsResourceExhausted("MiB are free"));
  EXPECT_THAT(ops->Synchronize(), IsOk());
}

}  // namespace
}  // namespace causeway
