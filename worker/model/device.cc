// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "glog/logging.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/ops_cpu.h"

namespace causeway {
namespace {

// The most values that a kernel for CUDA normalizes together
// (worker/model/cuda/kernel_ops.h).
constexpr int64_t kMostNormalized = 32768;

}  // namespace

absl::StatusOr<DeviceChoice> ParseDevices(absl::string_view text) {
  if (text == "cpu") return DeviceChoice{.devices = {Device{}}};
  if (text == "cuda") return DeviceChoice{.all_gpus = true};
  DeviceChoice choice;
  absl::string_view list = text;
  bool good = absl::ConsumePrefix(&list, "cuda:");
  for (const absl::string_view word : absl::StrSplit(list, ',')) {
    Device device = {.kind = Device::Kind::kCuda};
    good = good && absl::SimpleAtoi(word, &device.index) && device.index >= 0;
    for (const Device& other : choice.devices) {
      good = good && other.index != device.index;
    }
    choice.devices.push_back(device);
  }
  if (good) return choice;
  return absl::InvalidArgumentError(
      absl::StrCat("the device is \"", text,
                   "\"; allowed: cpu, cuda, cuda:N, and lists of different "
                   "GPUs as cuda:0,2"));
}

absl::StatusOr<std::vector<Device>> FindDevices(const DeviceChoice& choice) {
  std::vector<Device> devices = choice.devices;
  if (choice.all_gpus) {
    ASSIGN_OR_RETURN(const int count, CountCudaDevices());
    for (int i = 0; i < count; ++i) {
      devices.push_back({.kind = Device::Kind::kCuda, .index = i});
    }
  }
  for (const Device& device : devices) {
    if (device.is_host()) continue;
    RETURN_IF_ERROR(DescribeCudaDevice(device.index).status());
    for (const Device& other : devices) {
      const bool reached = device.index >= other.index ||
                           (CudaPeersReach(device.index, other.index) &&
                            CudaPeersReach(other.index, device.index));
      LOG_IF(WARNING, !reached)
          << "cuda:" << device.index << " and cuda:" << other.index
          << " have no access to each other's memory: ranks exchange data "
             "through the host's, which is slower (see nvidia-smi topo -p2p r)";
    }
  }
  return devices;
}

absl::StatusOr<std::string> DescribeDevices(absl::Span<const Device> devices) {
  // These are in order; equal neighbours are counted.
  std::vector<std::pair<std::string, int>> kinds;
  for (const Device& device : devices) {
    std::string name = "CPU";
    if (!device.is_host()) {
      ASSIGN_OR_RETURN(name, DescribeCudaDevice(device.index));
    }
    if (kinds.empty() || kinds.back().first != name) kinds.push_back({name, 0});
    ++kinds.back().second;
  }
  return absl::StrJoin(kinds, " + ", [](std::string* text, const auto& kind) {
    absl::StrAppend(text,
                    kind.second > 1 ? absl::StrCat(kind.second, " x ") : "",
                    kind.first);
  });
}

absl::Status CheckDeviceModel(const Device& device,
                              const v1::ModelConfig& model) {
  if (device.is_host()) return absl::OkStatus();
  const int64_t head_dim = HeadDim(model);
  if (head_dim % 16 != 0 || head_dim > 128) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model's heads (model.head_dim, or hidden_size / heads) have ",
        head_dim,
        " values; on CUDA that must be a multiple of 16 and at most 128"));
  }
  for (const auto& [name, size] :
       {std::pair("hidden_size", model.hidden_size()),
        std::pair("intermediate_size", model.intermediate_size())}) {
    if (size % 8 == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "model.", name, " is ", size, "; on CUDA it must be a multiple of 8"));
  }
  const int64_t heads = model.qk_norm_across_heads() ? model.heads() : 1;
  if (const int64_t widest =
          std::max<int64_t>(model.hidden_size(), heads * head_dim);
      widest > kMostNormalized) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model normalizes ", widest,
        " values together; allowed on CUDA: at most ", kMostNormalized));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Ops>> MakeDeviceOps(const Device& device,
                                                   int threads) {
  if (device.is_host()) return MakeCpuOps(threads);
  return MakeCudaOps(device.index);
}

}  // namespace causeway
