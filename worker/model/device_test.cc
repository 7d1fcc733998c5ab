// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/device.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> Indices(const DeviceChoice& choice) {
  std::vector<int> indices;
  for (const Device& device : choice.devices) {
    EXPECT_EQ(device.kind, Device::Kind::kCuda);
    indices.push_back(device.index);
  }
  return indices;
}

TEST(DeviceTest, ParsesNames) {
  ASSERT_OK_AND_ASSIGN(const DeviceChoice cpu, ParseDevices("cpu"));
  EXPECT_FALSE(cpu.all_gpus);
  ASSERT_EQ(cpu.devices.size(), 1u);
  EXPECT_TRUE(cpu.devices[0].is_host());
  ASSERT_OK_AND_ASSIGN(const DeviceChoice all, ParseDevices("cuda"));
  EXPECT_TRUE(all.all_gpus);
  EXPECT_THAT(all.devices, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const DeviceChoice third, ParseDevices("cuda:2"));
  EXPECT_THAT(Indices(third), ElementsAre(2));
  ASSERT_OK_AND_ASSIGN(const DeviceChoice several, ParseDevices("cuda:3,0,12"));
  EXPECT_FALSE(several.all_gpus);
  EXPECT_THAT(Indices(several), ElementsAre(3, 0, 12));
}

TEST(DeviceTest, RefusesOtherNames) {
  for (const char* wrong :
       {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda1", "cuda:1,",
        "cuda:1,,2", "cuda:1,1", "cuda:0,1,1", "cpu,cuda:1", "0,1"}) {
    EXPECT_THAT(ParseDevices(wrong),
                IsInvalidArgument("allowed: cpu, cuda, cuda:N"))
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
              IsInvalidArgument("model.intermediate_size is 682"));
  model.set_intermediate_size(688);
  model.set_heads(32);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              IsInvalidArgument("have 8 values; on CUDA"));
  model.set_head_dim(64);
  EXPECT_THAT(CheckDeviceModel(cuda, model), IsOk());
  model.set_hidden_size(260);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              IsInvalidArgument("model.hidden_size is 260"));
  model.set_hidden_size(32768 + 8);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              IsInvalidArgument("normalizes 32776 values together"));
  model.set_hidden_size(32768);
  EXPECT_THAT(CheckDeviceModel(cuda, model), IsOk());
  model.set_heads(1024);
  EXPECT_THAT(CheckDeviceModel(cuda, model), IsOk());
  model.set_qk_norm_across_heads(true);
  EXPECT_THAT(CheckDeviceModel(cuda, model),
              IsInvalidArgument("normalizes 65536 values together"));
  EXPECT_THAT(CheckDeviceModel(Device{}, model), IsOk());
}

TEST(DeviceTest, TheCpuIsThere) {
  EXPECT_THAT(DescribeDevices({Device{}}), IsOkAndHolds("CPU"));
  EXPECT_THAT(MakeDeviceOps(Device{}, 2), IsOk());
}

// Without a driver, or without CUDA in the build, the error has a reason and
// nothing crashes. A machine with GPUs has none with the name cuda:1000.
TEST(DeviceTest, SaysWhyThereIsNoSuchGpu) {
  const Device cuda = {.kind = Device::Kind::kCuda, .index = 1000};
  const auto says_why = testing::AnyOf(HasSubstr("built without CUDA"),
                                       HasSubstr("looking for CUDA devices"),
                                       HasSubstr("no device cuda:1000"));
  EXPECT_THAT(MakeDeviceOps(cuda, 1).status().message(), says_why);
  EXPECT_THAT(FindDevices({.devices = {cuda}}).status().message(), says_why);
}

}  // namespace
}  // namespace causeway
