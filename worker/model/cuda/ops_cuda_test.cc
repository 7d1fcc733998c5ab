// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The suite of ops_suite.h on device 0. Skipped where there is none.
#include "worker/model/cuda/ops_cuda.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/ops_suite.h"

namespace causeway {
namespace {

bool HasDevice() {
  int devices = 0;
  const bool counted = cudaGetDeviceCount(&devices) == cudaSuccess;
  cudaGetLastError();
  return counted && devices > 0;
}

TEST(OpsCudaTest, SaysSoIfThereIsNoDriver) {
  if (HasDevice()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(MakeCudaOps(0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::HasSubstr("looking for CUDA devices")));
}

TEST(OpsCudaTest, SaysHowManyDevicesThereAre) {
  if (!HasDevice()) GTEST_SKIP() << "there is no device";
  EXPECT_THAT(MakeCudaOps(1000),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("no device cuda:1000")));
}

TEST(OpsCudaTest, AnImpossibleAllocationIsRefusedAndHarmsNothing) {
  if (!HasDevice()) GTEST_SKIP() << "there is no device";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Ops> ops, MakeCudaOps(0));
  EXPECT_THAT(ops->Allocate(size_t{1} << 50),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       testing::HasSubstr("MiB are free")));
  EXPECT_THAT(ops->Synchronize(), IsOk());
}

}  // namespace

std::unique_ptr<Ops> NewOpsUnderTest() {
  if (!HasDevice()) return nullptr;
  absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps(0);
  EXPECT_THAT(ops, IsOk());
  return ops.ok() ? *std::move(ops) : nullptr;
}

}  // namespace causeway
