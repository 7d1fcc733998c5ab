// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/cuda_state.h"

#include <utility>

namespace causeway::ptx {

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
cudaError_t Broken() {
  absl::MutexLock lock(&TheRuntime().mu);
  return TheRuntime().broken;
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
  if (const cudaError_t broken = Broken(); broken != cudaSuccess) {
    return Said(broken);
  }
  return Said(operation());
}

cudaError_t Wait(cudaStream_t stream) {
  if (StreamOf(stream)->is_captured) {
    return Said(cudaErrorStreamCaptureUnsupported);
  }
  return Said(Broken());
}

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

// An error that is not for good is forgotten.
cudaError_t TakeLastError() { return std::exchange(last_error, Broken()); }
cudaError_t LastError() { return last_error; }

}  // namespace causeway::ptx
