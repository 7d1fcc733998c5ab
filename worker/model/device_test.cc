// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/device.h"

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(DeviceTest, ParsesNames) {
  ASSERT_OK_AND_ASSIGN(const Device cpu, ParseDevice("cpu"));
  EXPECT_TRUE(cpu.is_host());
  ASSERT_OK_AND_ASSIGN(const Device first, ParseDevice("cuda"));
  EXPECT_EQ(first.kind, Device::Kind::kCuda);
  EXPECT_EQ(first.index, 0);
  ASSERT_OK_AND_ASSIGN(const Device third, ParseDevice("cuda:2"));
  EXPECT_FALSE(third.is_host());
  EXPECT_EQ(third.index, 2);
  for (const char* wrong :
       {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda1", "cuda:1,2"}) {
    EXPECT_THAT(ParseDevice(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("allowed: cpu, cuda, cuda:N")))
        << wrong;
  }
}

TEST(DeviceTest, RefusesModelsThatItsKernelsCannotCompute) {
  v1::ModelConfig model;
  model.set_hidden_size(256);
  model.set_heads(4);
  model.set_intermediate_size(688);
  const Device cuda = {.kind = Device::Kind::kCuda};
  EXPECT_THAT(CheckDeviceModel(cuda, model), IsOk());
  model.set_intermediate_size(682);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.intermediate_size is 682")));
  model.set_intermediate_size(688);
  model.set_heads(32);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.hidden_size / model.heads is 8")));
  EXPECT_THAT(CheckDeviceModel(Device{}, model), IsOk());
}

TEST(DeviceTest, TheCpuIsThere) {
  EXPECT_THAT(DescribeDevice(Device{}), IsOkAndHolds("CPU"));
  EXPECT_THAT(MakeDeviceOps(Device{}, 2), IsOk());
}

// Without a driver, or built without CUDA, there is a reason and no crash;
// where there is a GPU, there is none of the name cuda:1000.
TEST(DeviceTest, SaysWhyThereIsNoSuchGpu) {
  const Device cuda = {.kind = Device::Kind::kCuda, .index = 1000};
  EXPECT_THAT(MakeDeviceOps(cuda, 1).status().message(),
              testing::AnyOf(HasSubstr("built without CUDA"),
                             HasSubstr("looking for CUDA devices"),
                             HasSubstr("no device cuda:1000")));
}

}  // namespace
}  // namespace causeway
