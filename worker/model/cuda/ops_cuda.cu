// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "worker/model/cuda/cublas_lt.h"
#include "worker/model/cuda/kernel_ops.h"
#include "worker/model/cuda/ops_cuda.h"

namespace causeway {
namespace {

constexpr double kMiB = 1 << 20;

class CudaOps final : public KernelOps {
 public:
  explicit CudaOps(int device) : device_(device) {}

  ~CudaOps() override {
    Use();
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    gemm_.reset();
    cudaFree(scratch_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "opening the device"));
    // Not blocked by the default stream, and not blocking it.
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                   "making a stream"));
    ASSIGN_OR_RETURN(gemm_, CublasLt::Create());
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Use();
    void* memory = nullptr;
    const absl::Status status = CudaStatus(
        cudaMalloc(&memory, std::max<size_t>(bytes, 1)), "allocating");
    if (absl::IsResourceExhausted(status)) return NotEnoughMemory(bytes);
    RETURN_IF_ERROR(status);
    Note(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing memory");
    return memory;
  }

  void Free(void* memory, size_t /*bytes*/) override {
    Use();
    // Waits for what the device is doing.
    Note(cudaFree(memory), "freeing memory");
  }

  void CopyToDevice(const void* host, size_t bytes, void* device) override {
    CopyAndWait(device, host, bytes, cudaMemcpyHostToDevice);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    CopyAndWait(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyActivationsToHost(const void* from, int64_t size,
                             float* host) override {
    std::vector<uint16_t> values(static_cast<size_t>(size));
    CopyToHost(from, values.size() * sizeof(uint16_t), values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      host[i] = std::bit_cast<float>(uint32_t{values[i]} << 16);
    }
  }

  absl::Status Synchronize() override {
    Use();
    Note(cudaStreamSynchronize(stream_), "waiting for the device");
    return status_;
  }

  void Copy(const float* from, int64_t size, float* to) override {
    if (!Use()) return;
    Note(cudaMemcpyAsync(to, from, static_cast<size_t>(size) * sizeof(float),
                         cudaMemcpyDeviceToDevice, stream_),
         "copying");
  }
  void Zero(int64_t size, float* values) override {
    if (!Use()) return;
    Note(cudaMemsetAsync(values, 0, static_cast<size_t>(size) * sizeof(float),
                         stream_),
         "clearing memory");
  }

 protected:
  DeviceStream stream() const override { return stream_; }
  bool ok() const override { return Use(); }
  void Record(LaunchError error, const char* doing) override {
    Note(error, doing);
  }

  void* Scratch(size_t bytes) override {
    if (!Use()) return nullptr;
    if (bytes <= scratch_bytes_) return scratch_;
    // Freeing waits for those who use it.
    Note(cudaFree(std::exchange(scratch_, nullptr)), "freeing memory");
    scratch_bytes_ = 0;
    const absl::Status status =
        CudaStatus(cudaMalloc(&scratch_, bytes), "allocating");
    if (status.ok()) scratch_bytes_ = bytes;
    Keep(absl::IsResourceExhausted(status) ? NotEnoughMemory(bytes) : status);
    return scratch_;
  }

  void Multiply(const MatrixProduct& product, const Bf16* a, const Bf16* b,
                void* c) override {
    if (!Use()) return;
    Keep(gemm_->Multiply(product, a, b, c, stream_));
  }

 private:
  // Makes the device the calling thread's, and says whether it has not failed.
  bool Use() const {
    cudaSetDevice(device_);
    return status_.ok();
  }

  void Note(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) Keep(CudaStatus(error, doing));
  }

  // The first error stays.
  void Keep(const absl::Status& status) {
    if (status.ok()) return;
    status_.Update(absl::Status(
        status.code(), absl::StrCat("cuda:", device_, ": ", status.message())));
  }

  absl::Status NotEnoughMemory(size_t bytes) const {
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(
        absl::StrCat("cuda:", device_, ": not enough memory for ",
                     static_cast<double>(bytes) / kMiB, " MiB more; ",
                     static_cast<double>(free) / kMiB, " of ",
                     static_cast<double>(total) / kMiB,
                     " MiB are free; a smaller training.micro_batch_size or "
                     "training.recompute_activations needs less"));
  }

  void CopyAndWait(void* to, const void* from, size_t bytes,
                   cudaMemcpyKind kind) {
    if (!Use()) return;
    Note(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying");
    Note(cudaStreamSynchronize(stream_), "copying");
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<CublasLt> gemm_;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  absl::Status status_;
};

absl::Status CheckDevice(int device) {
  int devices = 0;
  RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&devices), "looking for CUDA devices"));
  if (device < 0 || device >= devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no device cuda:", device, "; this machine has ",
                     devices, " (see also CUDA_VISIBLE_DEVICES)"));
  }
  int major = 0;
  RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for the device's abilities"));
  if (major < 8) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", device, " has compute capability ", major,
                     ".x; bf16 on tensor cores needs 8.0 (Ampere) or more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DescribeCudaDevice(int device) {
  RETURN_IF_ERROR(CheckDevice(device));
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device),
                             "asking for the device's name"));
  return absl::StrCat(properties.name, " (", properties.totalGlobalMem >> 30,
                      " GiB)");
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(int device) {
  RETURN_IF_ERROR(CheckDevice(device));
  auto ops = std::make_unique<CudaOps>(device);
  RETURN_IF_ERROR(ops->Start());
  return ops;
}

}  // namespace causeway
