// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_status.h"

#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(CudaStatusTest, SuccessIsOk) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "looking").ok());
}

TEST(CudaStatusTest, SaysWhatFailedAndWhatToDo) {
  const absl::Status status = CudaStatus(cudaErrorNoDevice, "finding a device");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("finding a device: "));
  EXPECT_THAT(status.message(), HasSubstr("cudaErrorNoDevice"));
  EXPECT_THAT(status.message(), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(CudaStatusTest, NoDriverIsNotAnOldDriver) {
  int driver = 0;
  ASSERT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_THAT(CudaStatus(cudaErrorInsufficientDriver, "looking").message(),
              HasSubstr(driver == 0 ? "there is no NVIDIA driver here"
                                    : "the NVIDIA driver is for CUDA "));
}

TEST(CudaStatusTest, CodesTellCausesApart) {
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CudaStatus(cudaErrorDevicesUnavailable, "").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorECCUncorrectable, "").code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(CudaStatus(cudaErrorNvlinkUncorrectable, "").code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(CudaStatus(cudaErrorPeerAccessUnsupported, "").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaStatus(cudaErrorMpsServerNotReady, "").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorIllegalAddress, "").code(),
            absl::StatusCode::kInternal);
}

TEST(CudaStatusTest, AnErrorIsNotReportedAgain) {
  SKIP_WITHOUT_CUDA_DEVICE();
  // No machine has that many devices.
  EXPECT_FALSE(CudaStatus(cudaSetDevice(1 << 20), "choosing a device").ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace causeway
