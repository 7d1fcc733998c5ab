// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device of tests: a GPU, or the emulator of tests/cuda_emulator
// (--config=cuda_emulated).
#ifndef COMMON_TESTING_CUDA_DEVICE_H_
#define COMMON_TESTING_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/cuda_status.h"
#include "gtest/gtest.h"

// Skips the test, and says why, if this process sees no device. On a machine
// with GPUs, tests/gpu/run.sh counts that as a failure.
#define SKIP_WITHOUT_CUDA_DEVICE()                                          \
  if (const absl::Status status = ::causeway::CudaDevice(); !status.ok()) { \
    GTEST_SKIP() << "no CUDA device: " << status.message();                 \
  }                                                                         \
  static_assert(true, "a semicolon follows")

namespace causeway {

// Returns OK if this process sees a device, and otherwise why it sees none.
inline absl::Status CudaDevice() {
  int devices = 0;
  return CudaStatus(cudaGetDeviceCount(&devices), "looking for CUDA devices");
}

// Returns how many calls so far may have waited for other devices of the
// process: for memory, graphs and code, and copies of memory that is not
// pinned. The emulator counts them; on a GPU the number is 0.
inline int64_t DeviceWideCalls() {
  using Count = int64_t();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  auto* const count = reinterpret_cast<Count*>(
      dlsym(RTLD_DEFAULT, "CudaEmulatorDeviceWideCalls"));
  return count == nullptr ? 0 : count();
}

}  // namespace causeway

#endif  // COMMON_TESTING_CUDA_DEVICE_H_
