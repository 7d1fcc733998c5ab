// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A fixture for tests of single operations on a device.
#ifndef WORKER_MODEL_CUDA_TESTING_OPS_CUDA_FIXTURE_H_
#define WORKER_MODEL_CUDA_TESTING_OPS_CUDA_FIXTURE_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/device_array.h"
#include "worker/model/testing/random_values.h"

namespace causeway {

// Half the largest relative distance of two neighbours in bf16.
inline constexpr double kRounding = 1.0 / 256;

class OpsCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA_DEVICE();
    ASSERT_OK_AND_ASSIGN(ops_, MakeCudaOps(0));
  }

  // Activations in device memory; the host sees them as fp32.
  struct Activations {
    DeviceArray<uint16_t> memory;
    void* data() { return memory.data(); }
  };
  struct Values {
    DeviceArray<float> memory;
    float* data() { return memory.data(); }
  };
  struct Tokens {
    DeviceArray<int32_t> memory;
    int32_t* data() { return memory.data(); }
  };

  Values Device(const Floats& host) {
    auto memory = *DeviceArray<float>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->CopyToDevice(host.data(), host.size() * 4, memory.data());
    return {std::move(memory)};
  }
  Tokens Device(const std::vector<int32_t>& host) {
    auto memory = *DeviceArray<int32_t>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->CopyToDevice(host.data(), host.size() * 4, memory.data());
    return {std::move(memory)};
  }
  // Rounds `host` to bf16 and returns a copy on the device.
  Activations Rounded(Floats& host) {
    Values values = Device(host);
    auto memory = *DeviceArray<uint16_t>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->RoundToActivations(values.data(), static_cast<int64_t>(host.size()),
                             memory.data());
    Activations activations = {std::move(memory)};
    host = Host(activations);
    return activations;
  }
  // Returns memory whose contents must be overwritten.
  Activations Garbage(int64_t size) {
    Floats values(static_cast<size_t>(size), NAN);
    return Rounded(values);
  }
  Values FloatGarbage(int64_t size) {
    return Device(Floats(static_cast<size_t>(size), NAN));
  }
  Floats Host(Activations& activations) {
    Floats host(static_cast<size_t>(activations.memory.size()));
    ops_->CopyActivationsToHost(activations.data(), activations.memory.size(),
                                host.data());
    EXPECT_THAT(ops_->Synchronize(), IsOk());
    return host;
  }
  Floats Host(Values& values) {
    Floats host(static_cast<size_t>(values.memory.size()));
    ops_->CopyToHost(values.data(), host.size() * 4, host.data());
    EXPECT_THAT(ops_->Synchronize(), IsOk());
    return host;
  }

  std::unique_ptr<Ops> ops_;
};

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_TESTING_OPS_CUDA_FIXTURE_H_
