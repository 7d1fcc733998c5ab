// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/ops_cpu.h"

namespace causeway {

absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  if (text == "cpu") return Device{};
  Device device = {.kind = Device::Kind::kCuda};
  absl::string_view index = text;
  if (text == "cuda") return device;
  if (absl::ConsumePrefix(&index, "cuda:") &&
      absl::SimpleAtoi(index, &device.index) && device.index >= 0) {
    return device;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the device is \"", text, "\"; allowed: cpu, cuda, cuda:N"));
}

absl::StatusOr<std::string> DescribeDevice(const Device& device) {
  if (device.is_host()) return "CPU";
  return DescribeCudaDevice(device.index);
}

absl::Status CheckDeviceModel(const Device& device,
                              const v1::ModelConfig& model) {
  if (device.is_host()) return absl::OkStatus();
  const int64_t head_size = int64_t{model.hidden_size()} / model.heads();
  if (head_size % 16 != 0 || head_size > 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.hidden_size / model.heads is ", head_size,
                     "; on CUDA it must be a multiple of 16 and at most 128"));
  }
  if (model.intermediate_size() % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.intermediate_size is ", model.intermediate_size(),
                     "; on CUDA it must be a multiple of 8"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Ops>> MakeDeviceOps(const Device& device,
                                                   int threads) {
  if (device.is_host()) return MakeCpuOps(threads);
  return MakeCudaOps(device.index);
}

}  // namespace causeway
