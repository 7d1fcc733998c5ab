// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/cuda_state.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"

namespace causeway::ptx {

Runtime::Runtime() {
  if (const char* const mib = std::getenv("CUDA_EMULATOR_MIB")) {
    for (Device& device : devices) {
      device.bytes = static_cast<size_t>(std::atoll(mib)) << 20;
    }
  }
  if (const char* const text = std::getenv("CUDA_EMULATOR_FAULT")) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    Device& device = devices.at(std::atoi(parts.at(0).c_str()));
    device.kernels_left = std::atoll(parts.at(1).c_str());
    device.fault = static_cast<cudaError_t>(std::atoi(parts.at(2).c_str()));
  }
}

Runtime& TheRuntime() {
  static auto& runtime = *new Runtime;
  return runtime;
}

namespace {
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
}  // namespace

cudaError_t Said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t Broken(int device) {
  absl::MutexLock lock(&TheRuntime().mu);
  return TheRuntime().devices[device].broken;
}
cudaError_t EndKernel(bool failed) {
  absl::MutexLock lock(&TheRuntime().mu);
  Device& device = TheRuntime().devices[current_device];
  if (failed) device.broken = cudaErrorLaunchFailure;
  if (--device.kernels_left <= 0) device.broken = device.fault;
  return device.broken;
}

CUstream_st* StreamOf(cudaStream_t stream) {
  static auto& null_stream = *new CUstream_st;
  return stream == nullptr ? &null_stream : stream;
}

cudaError_t Enqueue(cudaStream_t stream,
                    std::function<cudaError_t()> operation) {
  CUstream_st* const to = StreamOf(stream);
  if (to->is_captured) {
    to->captured.push_back(std::move(operation));
    return cudaSuccess;
  }
  if (const cudaError_t broken = Broken(to->device); broken != cudaSuccess) {
    return Said(broken);
  }
  return Said(operation());
}

cudaError_t Wait(cudaStream_t stream) {
  if (StreamOf(stream)->is_captured) {
    return Said(cudaErrorStreamCaptureUnsupported);
  }
  return Said(Broken(StreamOf(stream)->device));
}

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

// An error that is not for good is forgotten.
cudaError_t TakeLastError() {
  return std::exchange(last_error, Broken(current_device));
}
cudaError_t LastError() { return last_error; }

}  // namespace causeway::ptx
