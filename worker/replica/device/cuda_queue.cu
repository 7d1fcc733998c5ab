// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "worker/model/cuda/device_code.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 2048;

// The arithmetic of outer_optimizer/mixing.h, bit for bit. Threads continue at
// the stride of the grid, so any number of blocks works.

// Four values, which a thread reads and writes at once.
struct alignas(16) MixedQuad {
  float value[4];
};

// values <- combine(other, values), for arrays aligned to 16 bytes.
template <typename Combine>
CAUSEWAY_DEVICE void CombineAll(const float* other, int64_t size, float* values,
                                const Combine& combine) {
  for (int64_t i = GlobalThread(); i < size / 4; i += GlobalThreads()) {
    const MixedQuad from = reinterpret_cast<const MixedQuad*>(other)[i];
    MixedQuad to = reinterpret_cast<const MixedQuad*>(values)[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to.value[j] = combine(from.value[j], to.value[j]);
    }
    reinterpret_cast<MixedQuad*>(values)[i] = to;
  }
  const int64_t rest = size / 4 * 4 + GlobalThread();
  if (rest < size) values[rest] = combine(other[rest], values[rest]);
}

struct AddCombine {
  CAUSEWAY_DEVICE float operator()(float change, float value) const {
    return value + change;
  }
};

struct SubtractCombine {
  CAUSEWAY_DEVICE float operator()(float other, float value) const {
    return value - other;
  }
};

__global__ void AddKernel(const float* change, int64_t size, float* values) {
  CombineAll(change, size, values, AddCombine{});
}

__global__ void SubtractKernel(const float* other, int64_t size,
                               float* values) {
  CombineAll(other, size, values, SubtractCombine{});
}

// Copies by all threads of the block; the arrays do not overlap.
CAUSEWAY_DEVICE void CopyInBlock(const float* __restrict__ from, int64_t size,
                                 float* __restrict__ to) {
  int64_t quads = 0;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) %
          sizeof(MixedQuad) ==
      0) {
    quads = size / 4;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < quads; i += kThreads) {
      reinterpret_cast<MixedQuad*>(to)[i] =
          reinterpret_cast<const MixedQuad*>(from)[i];
    }
  }
#pragma unroll 4
  for (int64_t i = 4 * quads + threadIdx.x; i < size; i += kThreads) {
    to[i] = from[i];
  }
}

// The values that a block of threads copies.
constexpr int64_t kCopiedByBlock = 8192;

__global__ void CopyRunsKernel(const DeviceRun* runs, int64_t count,
                               int64_t begin, int64_t end, float* shard,
                               float* values, bool to_shard) {
  int64_t at = begin + int64_t{blockIdx.x} * kCopiedByBlock;
  const int64_t block_end =
      end - at < kCopiedByBlock ? end : at + kCopiedByBlock;
  // The last run that begins at `at` or before.
  int64_t run = 0;
  for (int64_t after = count; after - run > 1;) {
    const int64_t middle = (run + after) / 2;
    if (runs[middle].in_part <= at) {
      run = middle;
    } else {
      after = middle;
    }
  }
  while (at < block_end) {
    const DeviceRun copied = runs[run++];
    const int64_t run_end = copied.in_part + copied.size;
    const int64_t size = (run_end < block_end ? run_end : block_end) - at;
    float* const there = shard + copied.in_shard + (at - copied.in_part);
    float* const here = values + (at - begin);
    if (to_shard) {
      CopyInBlock(here, size, there);
    } else {
      CopyInBlock(there, size, here);
    }
    at += size;
  }
}

// Makes a device current in the calling thread. Until its destruction, a graph
// capture in another thread of a foreign program does not restrict this thread.
class DeviceUse {
 public:
  explicit DeviceUse(int device) {
    cudaSetDevice(device);
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~DeviceUse() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeThreadLocal;
};

class CudaQueue final : public DeviceQueue {
 public:
  explicit CudaQueue(int device) : device_(device) {}

  ~CudaQueue() override {
    const DeviceUse use(device_);
    if (stream_ == nullptr) return;
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  absl::Status Start(QueuePriority priority) {
    RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "opening the device"));
    const DeviceUse use(device_);
    int least = 0;
    int greatest = 0;
    RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                   "querying stream priorities"));
    return CudaStatus(cudaStreamCreateWithPriority(
                          &stream_, cudaStreamNonBlocking,
                          priority == QueuePriority::kHigh ? greatest : least),
                      "making a stream");
  }

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    const DeviceUse use(device_);
    void* memory = nullptr;
    const size_t size = std::max<size_t>(bytes, 1);
    const bool is_device = kind == MemoryKind::kDevice;
    // Portable memory: other ranks of the process may read it on their devices.
    const cudaError_t error =
        is_device ? cudaMalloc(&memory, size)
                  : cudaHostAlloc(&memory, size, cudaHostAllocPortable);
    const absl::Status status = CudaStatus(
        error, absl::StrCat("cuda:", device_, ": allocating ", size >> 20,
                            is_device ? " MiB of the device's memory"
                                      : " MiB of pinned host memory"));
    if (absl::IsResourceExhausted(status)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          status.message(),
          is_device ? "; a smaller training.micro_batch_size, more "
                      "synchronization.fragments, or "
                      "--anchors_on_device=false needs less"
                    : "; --anchors_on_device=true keeps anchors out of it"));
    }
    RETURN_IF_ERROR(status);
    return memory;
  }

  void Free(MemoryKind kind, void* memory) override {
    const DeviceUse use(device_);
    // An error here also shows in the next operation.
    if (kind == MemoryKind::kDevice) {
      cudaFree(memory);
    } else {
      cudaFreeHost(memory);
    }
  }

  void Copy(const void* from, size_t bytes, void* to) override {
    if (bytes == 0 || !status_.ok()) return;
    const DeviceUse use(device_);
    Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
         "copying");
  }

  void Add(const float* change, uint64_t count, float* values) override {
    Launch("adding an update", AddKernel, count, change,
           static_cast<int64_t>(count), values);
  }

  void Subtract(const float* other, uint64_t count, float* values) override {
    Launch("subtracting a snapshot", SubtractKernel, count, other,
           static_cast<int64_t>(count), values);
  }

  void CopyRuns(const DeviceRun* runs, uint64_t count, uint64_t begin,
                uint64_t end, float* shard, float* values,
                bool to_shard) override {
    if (begin >= end || !status_.ok()) return;
    const DeviceUse use(device_);
    const auto size = static_cast<int64_t>(end - begin);
    const int64_t blocks = (size + kCopiedByBlock - 1) / kCopiedByBlock;
    Note(LaunchKernel(CopyRunsKernel, {.x = static_cast<uint32_t>(blocks)},
                      kThreads, 0, stream_, runs, static_cast<int64_t>(count),
                      static_cast<int64_t>(begin), static_cast<int64_t>(end),
                      shard, values, to_shard),
         "copying between the shard and a part");
  }

  absl::Status Synchronize() override {
    const DeviceUse use(device_);
    Note(cudaStreamSynchronize(stream_), "waiting for the device");
    return status_;
  }

 private:
  template <typename Kernel, typename... Arguments>
  void Launch(const char* doing, Kernel* kernel, uint64_t count,
              Arguments... arguments) {
    if (count == 0 || !status_.ok()) return;
    const DeviceUse use(device_);
    const uint64_t blocks = (count / 4 + kThreads) / kThreads;
    Note(
        LaunchKernel(
            kernel, {.x = static_cast<uint32_t>(std::min(blocks, kMostBlocks))},
            kThreads, 0, stream_, arguments...),
        doing);
  }

  // Keeps the first error.
  void Note(cudaError_t error, const char* doing) {
    if (error == cudaSuccess) return;
    status_.Update(OfCudaDevice(device_, CudaStatus(error, doing)));
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(
    int device, QueuePriority priority) {
  auto queue = std::make_unique<CudaQueue>(device);
  RETURN_IF_ERROR(queue->Start(priority));
  return queue;
}

absl::StatusOr<int> DeviceOfMemory(const void* memory) {
  cudaPointerAttributes attributes = {};
  RETURN_IF_ERROR(CudaStatus(cudaPointerGetAttributes(&attributes, memory),
                             "querying which device has the memory"));
  if (attributes.type != cudaMemoryTypeDevice) {
    return absl::InvalidArgumentError("the memory is not a CUDA device's");
  }
  return attributes.device;
}

absl::Status AwaitStream(int device, void* stream) {
  const DeviceUse use(device);
  return OfCudaDevice(
      device,
      CudaStatus(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
                 "waiting for the training loop's stream"));
}

KeepCurrentDevice::KeepCurrentDevice() {
  if (cudaGetDevice(&device_) != cudaSuccess) device_ = kNone;
}
KeepCurrentDevice::~KeepCurrentDevice() {
  int device = kNone;
  // Choosing a device makes a context there, which takes memory of the device.
  if (device_ != kNone && cudaGetDevice(&device) == cudaSuccess &&
      device != device_) {
    cudaSetDevice(device_);
  }
}

}  // namespace causeway
