// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "worker/collective/gpu_collectives.h"

namespace causeway {
namespace {

constexpr int kThreads = 256;
// Enough blocks for every GPU; they loop over the rest of the values.
constexpr int64_t kMostBlocks = 2048;
constexpr size_t kMostVectors = 64;

// Passed by value: kernel arguments are in constant memory.
struct Vectors {
  const float* from[kMostVectors];
  int count = 0;
};

// to[i] <- from[0][i] + from[1][i] + ..., added in this order; `to` may be one
// of them.
__global__ void SumKernel(Vectors vectors, int64_t size, float* to) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += stride) {
    float sum = vectors.from[0][i];
    for (int j = 1; j < vectors.count; ++j) sum += vectors.from[j][i];
    to[i] = sum;
  }
}

class SharedGpuCollectives : public DeviceCollectives {
 public:
  SharedGpuCollectives(int rank, int device) : rank_(rank), device_(device) {}
  ~SharedGpuCollectives() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(Begin());
    return CudaStatus(
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
        "making the stream of collectives");
  }

  // Each rank writes only to its own shard, which no other rank reads here.
  absl::Status ReduceScatter(const DeviceVectors& vectors,
                             absl::Time /*deadline*/) override {
    RETURN_IF_ERROR(Begin());
    const Slice& shard = vectors.shards[rank_];
    if (shard.size() == 0) return absl::OkStatus();
    if (vectors.addresses.size() > kMostVectors) {
      return absl::InvalidArgumentError(
          absl::StrCat(vectors.addresses.size(),
                       " ranks share one GPU; allowed: ", kMostVectors));
    }
    Vectors from;
    for (const float* address : vectors.addresses) {
      from.from[from.count++] = address + shard.begin;
    }
    const int64_t blocks =
        std::min((shard.size() + kThreads - 1) / kThreads, kMostBlocks);
    SumKernel<<<static_cast<uint32_t>(blocks), kThreads, 0, stream_>>>(
        from, shard.size(), vectors.own.data() + shard.begin);
    return End(cudaGetLastError(), "a reduce-scatter on the GPU");
  }

  // Each rank reads the own shards of other ranks and writes to its copies of
  // them.
  absl::Status AllGather(const DeviceVectors& vectors,
                         absl::Time /*deadline*/) override {
    for (size_t peer = 0; peer < vectors.shards.size(); ++peer) {
      RETURN_IF_ERROR(Begin());
      const Slice& shard = vectors.shards[peer];
      if (static_cast<int>(peer) == rank_ || shard.size() == 0) continue;
      RETURN_IF_ERROR(
          End(cudaMemcpyAsync(vectors.own.data() + shard.begin,
                              vectors.addresses[peer] + shard.begin,
                              static_cast<size_t>(shard.size()) * sizeof(float),
                              cudaMemcpyDeviceToDevice, stream_),
              "an all-gather on the GPU"));
    }
    return absl::OkStatus();
  }

  void Abort() override { aborted_ = true; }

 private:
  // Makes the device current in the communicator's thread.
  absl::Status Begin() {
    if (aborted_) return absl::AbortedError("the operation was given up");
    return CudaStatus(cudaSetDevice(device_),
                      absl::StrCat("selecting device ", device_));
  }
  absl::Status End(cudaError_t started, absl::string_view doing) {
    RETURN_IF_ERROR(CudaStatus(started, doing));
    return CudaStatus(cudaStreamSynchronize(stream_), doing);
  }

  const int rank_;
  const int device_;
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeSharedGpuCollectives(
    int rank, int device) {
  auto collectives = std::make_unique<SharedGpuCollectives>(rank, device);
  RETURN_IF_ERROR(collectives->Start());
  return collectives;
}

}  // namespace causeway
