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
void EndKernel(int device, bool failed) {
  absl::MutexLock lock(&TheRuntime().mu);
  Device& of = TheRuntime().devices[device];
  if (failed) of.broken = cudaErrorLaunchFailure;
  if (--of.kernels_left <= 0) of.broken = of.fault;
}

CUstream_st* StreamOf(cudaStream_t stream) {
  static auto& null_streams = *new std::array<CUstream_st, kDevices>;
  if (stream != nullptr) return stream;
  null_streams[current_device].device = current_device;
  return &null_streams[current_device];
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> operation) {
  CUstream_st* const to = StreamOf(stream);
  if (to->is_captured) {
    to->captured.push_back(std::move(operation));
    return cudaSuccess;
  }
  if (const cudaError_t broken = Broken(to->device); broken != cudaSuccess) {
    return Said(broken);
  }
  absl::MutexLock lock(&to->mu);
  to->pending.push_back(std::move(operation));
  return cudaSuccess;
}

cudaError_t Wait(cudaStream_t stream) {
  CUstream_st* const of = StreamOf(stream);
  if (of->is_captured) return Said(cudaErrorStreamCaptureUnsupported);
  absl::MutexLock work_lock(&of->work_mu);
  while (true) {
    std::function<void()> operation;
    {
      absl::MutexLock lock(&of->mu);
      if (of->pending.empty()) break;
      operation = std::move(of->pending.front());
      of->pending.pop_front();
    }
    if (Broken(of->device) == cudaSuccess) operation();
  }
  return Said(Broken(of->device));
}

void WaitForDevice(bool blocking_only) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    absl::MutexLock lock(&TheRuntime().mu);
    for (const auto& [stream, owner] : TheRuntime().streams) {
      if (stream->device == current_device && !stream->is_captured &&
          (stream->is_blocking || !blocking_only)) {
        streams.push_back(owner);
      }
    }
  }
  for (const auto& stream : streams) Wait(stream.get());
  Wait(nullptr);
}

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

// Errors are forgotten unless they are permanent.
cudaError_t TakeLastError() {
  return std::exchange(last_error, Broken(current_device));
}
cudaError_t LastError() { return last_error; }

}  // namespace causeway::ptx
