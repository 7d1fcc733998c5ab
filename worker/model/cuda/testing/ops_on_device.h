// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The device for tests that need one: a GPU, or the emulator of
// tests/cuda_emulator (--config=cuda_emulated).
#ifndef WORKER_MODEL_CUDA_TESTING_OPS_ON_DEVICE_H_
#define WORKER_MODEL_CUDA_TESTING_OPS_ON_DEVICE_H_

#include <memory>
#include <utility>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/ops_cuda.h"

namespace causeway {

// Returns operations on device 0, or null if there is no device; the tests are
// skipped then.
inline std::unique_ptr<Ops> OpsOnDevice() {
  const absl::StatusOr<int> devices = CountCudaDevices();
  if (!devices.ok() || *devices == 0) return nullptr;
  absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps(0);
  EXPECT_OK(ops);
  return ops.ok() ? *std::move(ops) : nullptr;
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_TESTING_OPS_ON_DEVICE_H_
