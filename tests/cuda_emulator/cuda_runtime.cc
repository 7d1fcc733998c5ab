// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime that this project calls, except those of
// cuda_kernels.cc, for two devices. Operations run as late as possible: when a
// thread waits for their stream. Device memory begins with bytes of 0xff.
// Kernels and copies may use it only as far as it was allocated; if the host
// touches it, the program ends. A kernel that fails leaves a permanent error,
// as on a GPU, and prints the reason to stderr.
//
// CudaEmulatorDeviceWideCalls counts the calls that may wait for other devices
// of the process, where NCCL's kernels may be waiting for this one.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/cuda_emulator/cuda_state.h"

struct CUevent_st {
  // The last recording, shared with the pending operation that sets its time.
  struct Record {
    std::chrono::steady_clock::time_point time;
  };
  std::shared_ptr<Record> record = std::make_shared<Record>();
  cudaStream_t stream = nullptr;
};
struct CUgraph_st {
  std::vector<std::function<void()>> operations;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> operations;
};

namespace causeway::ptx {
namespace {

bool IsOfDevice(const void* memory, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto [begin, end] =
      TheRuntime().memory.Around(address, DeviceMemory::kAny);
  return bytes == 0 || (address >= begin && address + bytes <= end);
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  const bool to_device =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((to_device && !IsOfDevice(to, bytes)) ||
      (from_device && !IsOfDevice(from, bytes))) {
    std::fprintf(stderr, "cuda emulator: a copy beyond the device's memory\n");
    return Said(cudaErrorInvalidValue);
  }
  // Host memory that is not pinned is read at once, and written before the call
  // returns.
  if (!IsOfDevice(from, bytes) || !IsOfDevice(to, bytes)) {
    ++TheRuntime().device_wide_calls;
  }
  std::vector<char> copy;
  if (!IsOfDevice(from, bytes)) {
    copy.assign(static_cast<const char*>(from),
                static_cast<const char*>(from) + bytes);
  }
  const cudaError_t error =
      Enqueue(stream, [to, from, bytes, copy = std::move(copy)] {
        const DeviceMemory& memory = TheRuntime().memory;
        std::memmove(memory.InHost(to),
                     copy.empty() ? memory.InHost(from) : copy.data(), bytes);
      });
  return IsOfDevice(to, bytes) ? error : Wait(stream);
}

}  // namespace
}  // namespace causeway::ptx

// The names are the runtime's.
// NOLINTBEGIN(readability-identifier-naming)
using namespace causeway::ptx;  // NOLINT(google-build-using-namespace)

extern "C" {

// Tests find it by its name (common/testing/cuda_device.h).
int64_t CudaEmulatorDeviceWideCalls();
int64_t CudaEmulatorDeviceWideCalls() { return TheRuntime().device_wide_calls; }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  Runtime& runtime = TheRuntime();
  ++runtime.device_wide_calls;
  absl::MutexLock lock(&runtime.mu);
  Device& device = runtime.devices[CurrentDevice()];
  if (bytes > device.bytes - device.bytes_taken) {
    return Said(cudaErrorMemoryAllocation);
  }
  device.bytes_taken += bytes;
  *memory = runtime.memory.Allocate(bytes, CurrentDevice());
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  ++TheRuntime().device_wide_calls;
  WaitForDevice(/*blocking_only=*/false);
  const std::optional<DeviceMemory::Part> part =
      TheRuntime().memory.Remove(memory, /*pinned=*/false);
  if (!part.has_value()) return Said(cudaErrorInvalidValue);
  absl::MutexLock lock(&TheRuntime().mu);
  TheRuntime().devices[part->device].bytes_taken -= part->bytes;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  ++TheRuntime().device_wide_calls;
  *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (*memory == nullptr) return Said(cudaErrorMemoryAllocation);
  std::memset(*memory, -1, bytes);
  TheRuntime().memory.Pin(*memory, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return cudaMallocHost(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  ++TheRuntime().device_wide_calls;
  WaitForDevice(/*blocking_only=*/false);
  if (!TheRuntime().memory.Remove(memory, /*pinned=*/true).has_value()) {
    return Said(cudaErrorInvalidValue);
  }
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* memory) {
  *attributes = {};
  const auto address = reinterpret_cast<uintptr_t>(memory);
  for (int device = 0; device < kDevices; ++device) {
    const auto [begin, end] = TheRuntime().memory.Around(address, device);
    if (begin == end || TheRuntime().memory.InHost(memory) == memory) continue;
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = device;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  absl::MutexLock lock(&TheRuntime().mu);
  const Device& device = TheRuntime().devices[CurrentDevice()];
  *total = device.bytes;
  *free = device.bytes - device.bytes_taken;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  WaitForDevice(/*blocking_only=*/true);
  const cudaError_t error = Copy(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? Wait(nullptr) : error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return Copy(to, from, bytes, kind, stream);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes,
                            cudaStream_t stream) {
  if (!IsOfDevice(memory, bytes)) return Said(cudaErrorInvalidValue);
  return Enqueue(stream, [=] {
    std::memset(TheRuntime().memory.InHost(memory), value, bytes);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  auto made = std::make_shared<CUstream_st>();
  made->device = CurrentDevice();
  made->is_blocking = flags == cudaStreamDefault;
  *stream = made.get();
  absl::MutexLock lock(&TheRuntime().mu);
  TheRuntime().streams[*stream] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Wait(stream);
  absl::MutexLock lock(&TheRuntime().mu);
  TheRuntime().streams.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (StreamOf(stream)->held > 0) absl::SleepFor(absl::Milliseconds(1));
  return Wait(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return StreamOf(stream)->held > 0 ? cudaErrorNotReady : Wait(stream);
}
cudaError_t cudaDeviceSynchronize() {
  WaitForDevice(/*blocking_only=*/false);
  return Said(Broken(CurrentDevice()));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->is_captured) {
    return Said(cudaErrorStreamCaptureUnsupported);
  }
  stream->is_captured = true;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->is_captured = false;
  *graph = new CUgraph_st{std::exchange(stream->captured, {})};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* execution, cudaGraph_t graph,
                                 unsigned long long) {
  ++TheRuntime().device_wide_calls;
  *execution = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t execution, cudaStream_t stream) {
  for (const auto& operation : execution->operations) {
    const cudaError_t error = Enqueue(stream, operation);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t execution) {
  ++TheRuntime().device_wide_calls;
  delete execution;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return Enqueue(stream, [record = event->record] {
    record->time = std::chrono::steady_clock::now();
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Wait(event->stream);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->record->time -
                                                           begin->record->time)
                      .count();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return Said(cudaErrorInvalidDevice);
  SetCurrentDevice(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulator of tests/cuda_emulator");
  size_t free = 0;
  cudaMemGetInfo(&free, &properties->totalGlobalMem);
  properties->major = 8;
  properties->minor = 6;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor   ? 8
           : attribute == cudaDevAttrComputeCapabilityMinor ? 6
                                                            : 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return TakeLastError(); }
cudaError_t cudaPeekAtLastError() { return LastError(); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "an error of the emulator";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
