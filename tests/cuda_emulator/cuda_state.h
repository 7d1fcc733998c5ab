// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The state that the runtime's functions share: kernels by their host
// functions, memory, streams and errors.
#ifndef TESTS_CUDA_EMULATOR_CUDA_STATE_H_
#define TESTS_CUDA_EMULATOR_CUDA_STATE_H_

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tests/cuda_emulator/ptx_machine.h"
#include "tests/cuda_emulator/ptx_program.h"

// A stream. Its operations run when a thread waits for them. So code that
// forgets to wait reads old values, or frees memory that is still needed.
struct CUstream_st {
  int device = 0;
  // If true, the default stream waits for this one.
  bool is_blocking = false;
  absl::Mutex mu;
  std::deque<std::function<void()>> pending ABSL_GUARDED_BY(mu);
  // Held by the thread that runs the operations.
  absl::Mutex work_mu ABSL_ACQUIRED_BEFORE(mu);
  // The number of collective operations that other ranks have not joined yet.
  std::atomic<int> held = 0;
  bool is_captured = false;
  std::vector<std::function<void()>> captured;
};

namespace causeway::ptx {

// The PTX that nvcc put into the program for one .cu file.
struct Module {
  const char* ptx = nullptr;
  absl::Mutex mu;
  std::unique_ptr<Program> program ABSL_GUARDED_BY(mu);

  absl::StatusOr<const Program*> Get() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    if (program == nullptr) {
      if (ptx == nullptr) return absl::NotFoundError("there is no PTX");
      absl::StatusOr<std::unique_ptr<Program>> read = ReadProgram(ptx);
      if (!read.ok()) return read.status();
      program = *std::move(read);
    }
    return program.get();
  }
};

struct Kernel {
  Module* module = nullptr;
  std::string name;
  // The limit of compute capability 8.6; the kernel's attribute can raise it.
  size_t dynamic_shared_bytes = 48 << 10;
  // The devices that have its code.
  std::set<int> loaded;
};

// The two devices do not reach each other's memory.
inline constexpr int kDevices = 2;

struct Device {
  size_t bytes = size_t{4} << 30;
  size_t bytes_taken = 0;
  // The number of kernels that run before `fault` becomes a permanent error.
  int64_t kernels_left = std::numeric_limits<int64_t>::max();
  cudaError_t fault = cudaErrorLaunchFailure;
  cudaError_t broken = cudaSuccess;
};

struct Runtime {
  // Reads the environment, by which a device may have less memory, or fail:
  //   CUDA_EMULATOR_MIB=64
  //   CUDA_EMULATOR_FAULT=1:500:214      device 1, after 500 kernels, error 214
  Runtime();

  absl::Mutex mu;
  std::map<const void*, Kernel> kernels ABSL_GUARDED_BY(mu);
  std::array<Device, kDevices> devices ABSL_GUARDED_BY(mu);
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams
      ABSL_GUARDED_BY(mu);
  DeviceMemory memory;
  // The calls so far that may wait for all devices of a process.
  std::atomic<int64_t> device_wide_calls = 0;
};
Runtime& TheRuntime();

// Get and set the device of the calling thread.
int CurrentDevice();
void SetCurrentDevice(int device);

// Keeps an error for cudaGetLastError, and returns it.
cudaError_t Said(cudaError_t error);
// Returns the permanent error that a kernel has left on a device.
cudaError_t Broken(int device);
// Must be called after each kernel of the device; `failed` says how it ended.
void EndKernel(int device, bool failed);
cudaError_t TakeLastError();
cudaError_t LastError();

CUstream_st* StreamOf(cudaStream_t stream);
// Adds an operation, to run later or, while the stream is captured, in a graph.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> operation);
// Runs the pending operations; the stream must not be captured.
cudaError_t Wait(cudaStream_t stream);
// Waits for all streams of the current device, or only for those that the
// default stream waits for.
void WaitForDevice(bool blocking_only);

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_CUDA_STATE_H_
