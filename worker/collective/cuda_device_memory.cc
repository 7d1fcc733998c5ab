// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/cuda_device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/vector_sum.h"

namespace causeway {
namespace {

class CudaDeviceMemory : public DeviceMemory {
 public:
  explicit CudaDeviceMemory(int device) : device_(device) {}
  ~CudaDeviceMemory() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(UseDevice());
    return CudaStatus(
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
        "making the stream of collectives");
  }

  absl::Status Sum(absl::Span<const float* const> from, int64_t size,
                   float* to) override {
    CHECK_LE(from.size(), static_cast<size_t>(kMaxVectorsSummed));
    RETURN_IF_ERROR(UseDevice());
    VectorsToSum vectors;
    vectors.count = static_cast<int>(from.size());
    std::copy(from.begin(), from.end(), vectors.from);
    RETURN_IF_ERROR(SumVectors(vectors, size, to, stream_));
    return Await("a reduce-scatter on the GPU");
  }

  absl::Status Copy(const float* from, int64_t size, float* to) override {
    RETURN_IF_ERROR(UseDevice());
    RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(to, from, static_cast<size_t>(size) * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream_),
        "starting an all-gather on the GPU"));
    return Await("an all-gather on the GPU");
  }

 private:
  // The communicator's thread knows of no device.
  absl::Status UseDevice() {
    return CudaStatus(cudaSetDevice(device_),
                      absl::StrCat("taking device ", device_));
  }
  absl::Status Await(absl::string_view doing) {
    return CudaStatus(cudaStreamSynchronize(stream_), doing);
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemory>> MakeCudaDeviceMemory(int device) {
  auto memory = std::make_unique<CudaDeviceMemory>(device);
  RETURN_IF_ERROR(memory->Start());
  return memory;
}

}  // namespace causeway
