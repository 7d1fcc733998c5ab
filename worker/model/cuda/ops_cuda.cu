// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/model/cuda/cublas_lt.h"
#include "worker/model/cuda/cudnn_attention.h"
#include "worker/model/cuda/kernel_ops.h"
#include "worker/model/cuda/ops_cuda.h"

namespace causeway {
namespace {

constexpr double kMiB = 1 << 20;

// The most series of operations that are kept as graphs. Further series run as
// single operations.
constexpr size_t kMostRecordings = 32;

// The most bytes of a copy to the device that the host does not wait for, and
// the most such copies in flight: a micro-batch has three, tokens, targets and
// the beginnings of documents.
constexpr size_t kUploadBytes = size_t{1} << 20;
constexpr size_t kUploads = 3;
// The most bytes of a copy to the host that goes through pinned memory: sums
// and losses, which are copied while other GPUs communicate.
constexpr size_t kDownloadBytes = size_t{64} << 10;

class CudaOps final : public KernelOps {
 public:
  CudaOps(int device, const CudaOpsOptions& options)
      : device_(device),
        can_record_(options.times == nullptr),
        times_(options.times) {
    if (options.may_use_cudnn) return;
    no_cudnn_.Update(absl::FailedPreconditionError("cuDNN must not be used"));
  }

  ~CudaOps() override {
    Use();
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    ForgetRecordings();
    for (const Mark& mark : marks_) cudaEventDestroy(mark.end);
    gemm_.reset();
    cudnn_.reset();
    cudaFree(scratch_);
    for (const Upload& upload : uploads_) {
      if (upload.done != nullptr) cudaEventDestroy(upload.done);
      cudaFreeHost(upload.memory);
    }
    cudaFreeHost(download_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "opening the device"));
    // The stream and the default stream do not block each other. Its operations
    // go before exchanges, which have the least priority, 0, and after what
    // training waits for.
    constexpr int kPriority = -1;
    RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithPriority(
                                   &stream_, cudaStreamNonBlocking, kPriority),
                               "making a stream"));
    for (Upload& upload : uploads_) {
      RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&upload.memory, kUploadBytes),
                                 "allocating pinned memory"));
      RETURN_IF_ERROR(CudaStatus(
          cudaEventCreateWithFlags(&upload.done, cudaEventDisableTiming),
          "making an event"));
    }
    RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&download_, kDownloadBytes),
                               "allocating pinned memory"));
    ASSIGN_OR_RETURN(gemm_, CublasLt::Create());
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Use();
    CountAllocation();
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
    // The recordings may use the memory.
    ForgetRecordings();
    // cudaFree() waits for the device.
    Note(cudaFree(memory), "freeing memory");
  }

  int64_t FreeBytes() const override {
    Use();
    size_t free = 0;
    size_t total = 0;
    const cudaError_t error = cudaMemGetInfo(&free, &total);
    return error == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }

  // Launches the operations as one graph, because single launches cost more
  // than short operations.
  void Replay(const ReplayKey& key,
              absl::FunctionRef<void()> operations) override {
    if (!Use()) return;
    if (recordings_.size() >= kMostRecordings && !recordings_.contains(key)) {
      return operations();
    }
    const auto [found, is_first] = recordings_.try_emplace(key, nullptr);
    // The first time, libraries choose algorithms and scratch memory grows.
    if (is_first) return operations();
    cudaGraphExec_t recording = found->second;
    if (recording == nullptr) recording = Recorded(key, operations);
    if (recording == nullptr) return operations();
    Note(cudaGraphLaunch(recording, stream_), "repeating a graph");
  }
  void PrepareReplay(const ReplayKey& key,
                     absl::FunctionRef<void()> operations) override {
    if (!Use() || recordings_.size() >= kMostRecordings) return;
    const auto [found, is_first] = recordings_.try_emplace(key, nullptr);
    if (found->second == nullptr) Recorded(key, operations);
  }

  // Copies through pinned memory, which is reused when its copy is done. So the
  // host can be ahead of the device by kUploads copies.
  void CopyToDevice(const void* host, size_t bytes, void* device) override {
    if (bytes > kUploadBytes) {
      return CopyAndWait(device, host, bytes, cudaMemcpyHostToDevice);
    }
    if (!Use()) return;
    const Upload& upload = uploads_[next_upload_];
    next_upload_ = (next_upload_ + 1) % uploads_.size();
    Note(cudaEventSynchronize(upload.done), "copying");
    std::memcpy(upload.memory, host, bytes);
    Note(cudaMemcpyAsync(device, upload.memory, bytes, cudaMemcpyHostToDevice,
                         stream_),
         "copying");
    Note(cudaEventRecord(upload.done, stream_), "copying");
    MarkEnd("copying");
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    if (bytes > kDownloadBytes) {
      return CopyAndWait(host, device, bytes, cudaMemcpyDeviceToHost);
    }
    CopyAndWait(download_, device, bytes, cudaMemcpyDeviceToHost);
    if (status_.ok()) std::memcpy(host, download_, bytes);
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
    CountWait();
    Note(cudaStreamSynchronize(stream_), "waiting for the device");
    if (times_ != nullptr) AddTimes();
    return status_;
  }

  void Copy(const float* from, int64_t size, float* to) override {
    if (!Use()) return;
    Note(cudaMemcpyAsync(to, from, static_cast<size_t>(size) * sizeof(float),
                         cudaMemcpyDeviceToDevice, stream_),
         "copying");
    MarkEnd("copying");
  }
  void Zero(int64_t size, float* values) override {
    if (!Use()) return;
    Note(cudaMemsetAsync(values, 0, static_cast<size_t>(size) * sizeof(float),
                         stream_),
         "clearing memory");
    MarkEnd("clearing memory");
  }

  void Attention(const AttentionShape& shape, const void* qkv, void* output,
                 float* log_sum_exp) override {
    const auto scratch = [&](size_t bytes) { return Scratch(bytes); };
    if (FindCudnn().ok() &&
        cudnn_->Forward(shape, qkv, output, log_sum_exp, scratch).ok()) {
      return MarkEnd("attention by cuDNN");
    }
    KernelOps::Attention(shape, qkv, output, log_sum_exp);
  }
  void AttentionBackward(const AttentionShape& shape, const void* qkv,
                         const void* output, const float* log_sum_exp,
                         const void* d_output, void* d_qkv) override {
    const auto scratch = [&](size_t bytes) { return Scratch(bytes); };
    if (FindCudnn().ok() && cudnn_
                                ->Backward(shape, qkv, output, log_sum_exp,
                                           d_output, d_qkv, scratch)
                                .ok()) {
      return MarkEnd("the gradient of attention by cuDNN");
    }
    KernelOps::AttentionBackward(shape, qkv, output, log_sum_exp, d_output,
                                 d_qkv);
  }
  absl::Status PrepareCudnn(const AttentionShape& shape) {
    RETURN_IF_ERROR(FindCudnn());
    RETURN_IF_ERROR(cudnn_->Prepare(shape, AttentionPass::kForward));
    return cudnn_->Prepare(shape, AttentionPass::kBackward);
  }

 protected:
  cudaStream_t stream() const override { return stream_; }
  bool ok() const override { return Use(); }
  void Record(cudaError_t error, const char* doing) override {
    Note(error, doing);
    MarkEnd(doing);
  }

  void* Scratch(size_t bytes) override {
    if (!Use()) return nullptr;
    if (!CountScratch(bytes)) return scratch_;
    ForgetRecordings();
    // cudaFree() waits for the operations that use the memory.
    Note(cudaFree(std::exchange(scratch_, nullptr)), "freeing memory");
    const absl::Status status =
        CudaStatus(cudaMalloc(&scratch_, bytes), "allocating");
    Keep(absl::IsResourceExhausted(status) ? NotEnoughMemory(bytes) : status);
    return scratch_;
  }

  void Multiply(const MatrixProduct& product, const Bf16* a, const Bf16* b,
                void* c) override {
    if (!Use()) return;
    Keep(gemm_->Multiply(product, a, b, c, stream_));
    if (times_ == nullptr) return;
    MarkEnd(absl::StrCat("product of ", product.rows, " by ", product.columns,
                         " by ", product.inner,
                         product.transpose_a ? ", a turned" : "",
                         product.transpose_b ? ", b turned" : ""),
            2.0 * static_cast<double>(product.rows) *
                static_cast<double>(product.columns) *
                static_cast<double>(product.inner));
  }

 private:
  // Makes the device current for the calling thread, and returns whether
  // nothing has failed.
  bool Use() const {
    cudaSetDevice(device_);
    return status_.ok();
  }

  // Looks for cuDNN at the first call, since not all objects compute attention.
  // Returns OK if there is one, and nothing has failed.
  absl::Status FindCudnn() {
    if (!Use()) return status_;
    if (cudnn_ != nullptr || !no_cudnn_.ok()) return no_cudnn_;
    absl::StatusOr<std::unique_ptr<CudnnAttention>> cudnn =
        MakeCudnnAttention(stream_);
    if (cudnn.ok()) {
      cudnn_ = *std::move(cudnn);
    } else {
      no_cudnn_.Update(cudnn.status());
      LOG(INFO) << "cuda:" << device_
                << " computes attention without cuDNN: " << no_cudnn_.message();
    }
    return no_cudnn_;
  }

  void Note(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) Keep(CudaStatus(error, doing));
  }

  // Keeps the first error.
  void Keep(const absl::Status& status) {
    status_.Update(OfCudaDevice(device_, status));
  }

  absl::Status NotEnoughMemory(size_t bytes) const {
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(
        absl::StrCat("cuda:", device_, ": not enough memory for ",
                     static_cast<double>(bytes) / kMiB, " MiB more; ",
                     static_cast<double>(free) / kMiB, " of ",
                     static_cast<double>(total) / kMiB, " MiB are free"));
  }

  // Records the operations of a key. Returns null if that fails, and from then
  // on.
  cudaGraphExec_t Recorded(const ReplayKey& key,
                           absl::FunctionRef<void()> operations) {
    if (!can_record_) return nullptr;
    cudaGraphExec_t recording = nullptr;
    const absl::Status recorded = RecordGraph(operations, recording);
    if (!recorded.ok()) {
      LOG(WARNING) << "cuda:" << device_
                   << " continues without graphs: " << recorded.message();
      can_record_ = false;
      return nullptr;
    }
    return recordings_[key] = recording;
  }

  // Records the operations as a graph instead of running them. After an error
  // the object's state is as if they had not been called.
  absl::Status RecordGraph(absl::FunctionRef<void()> operations,
                           cudaGraphExec_t& recording) {
    // Other threads may use the device freely meanwhile.
    RETURN_IF_ERROR(CudaStatus(
        cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
        "beginning to record a graph"));
    operations();
    cudaGraph_t graph = nullptr;
    const absl::Status ended =
        CudaStatus(cudaStreamEndCapture(stream_, &graph), "recording a graph");
    absl::Status status = std::exchange(status_, absl::OkStatus());
    status.Update(ended);
    if (status.ok()) {
      status.Update(CudaStatus(cudaGraphInstantiate(&recording, graph, 0),
                               "preparing a graph"));
    }
    if (status.ok()) {
      status.Update(
          CudaStatus(cudaGraphUpload(recording, stream_), "loading a graph"));
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status;
  }

  void ForgetRecordings() {
    for (const auto& [key, recording] : recordings_) {
      if (recording != nullptr) cudaGraphExecDestroy(recording);
    }
    recordings_.clear();
  }

  void CopyAndWait(void* to, const void* from, size_t bytes,
                   cudaMemcpyKind kind) {
    if (!Use()) return;
    CountWait();
    Note(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying");
    Note(cudaStreamSynchronize(stream_), "copying");
    MarkEnd("copying");
  }

  // Marks the end of an operation, if operations are timed.
  void MarkEnd(absl::string_view name, double floating_point_operations = 0) {
    if (times_ == nullptr) return;
    Mark mark = {std::string(name), floating_point_operations};
    Note(cudaEventCreate(&mark.end), "making an event");
    Note(cudaEventRecord(mark.end, stream_), "timing");
    marks_.push_back(std::move(mark));
  }

  // Gives each operation the time since the one before ended, and the first one
  // the time since the last Synchronize.
  void AddTimes() {
    for (size_t i = 1; i < marks_.size(); ++i) {
      float milliseconds = 0;
      Note(
          cudaEventElapsedTime(&milliseconds, marks_[i - 1].end, marks_[i].end),
          "timing");
      OperationTime& time = (*times_)[marks_[i].name];
      time.seconds += milliseconds / 1e3;
      ++time.calls;
      time.floating_point_operations += marks_[i].floating_point_operations;
    }
    for (const Mark& mark : marks_) cudaEventDestroy(mark.end);
    marks_.clear();
    MarkEnd("waiting for the device");
  }

  struct Mark {
    std::string name;
    double floating_point_operations = 0;
    cudaEvent_t end = nullptr;
  };

  struct Upload {
    void* memory = nullptr;
    // Marks the end of the copy from `memory`.
    cudaEvent_t done = nullptr;
  };

  const int device_;
  cudaStream_t stream_ = nullptr;
  std::array<Upload, kUploads> uploads_;
  size_t next_upload_ = 0;
  void* download_ = nullptr;
  std::unique_ptr<CublasLt> gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;
  // Says why there is no cuDNN.
  absl::Status no_cudnn_;
  void* scratch_ = nullptr;
  // The recorded graphs by key; null for operations that have run once.
  absl::flat_hash_map<ReplayKey, cudaGraphExec_t> recordings_;
  bool can_record_;
  // Null unless operations are timed.
  OperationTimes* const times_;
  std::vector<Mark> marks_;
  absl::Status status_;
};

absl::Status CheckDevice(int device) {
  ASSIGN_OR_RETURN(const int devices, CountCudaDevices());
  if (device < 0 || device >= devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no device cuda:", device, "; this machine has ",
                     devices, " (see also CUDA_VISIBLE_DEVICES)"));
  }
  int major = 0;
  RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "querying the device's compute capability"));
  if (major < 8) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", device, " has compute capability ", major,
                     ".x; bf16 on tensor cores needs 8.0 (Ampere) or more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CountCudaDevices() {
  int devices = 0;
  RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&devices), "looking for CUDA devices"));
  // The runtime may also report this as an error.
  if (devices == 0) return CudaStatus(cudaErrorNoDevice, "looking");
  return devices;
}

bool CudaPeersReach(int device, int other) {
  int reaches = 0;
  return cudaDeviceCanAccessPeer(&reaches, device, other) == cudaSuccess &&
         reaches != 0;
}

absl::StatusOr<std::string> DescribeCudaDevice(int device) {
  RETURN_IF_ERROR(CheckDevice(device));
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device),
                             "querying the device's name"));
  return absl::StrCat(properties.name, " (", properties.totalGlobalMem >> 30,
                      " GiB)");
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(
    int device, const CudaOpsOptions& options) {
  RETURN_IF_ERROR(CheckDevice(device));
  auto ops = std::make_unique<CudaOps>(device, options);
  RETURN_IF_ERROR(ops->Start());
  return ops;
}

absl::Status PrepareCudnn(const AttentionShape& shape, Ops& ops) {
  return static_cast<CudaOps&>(ops).PrepareCudnn(shape);
}

}  // namespace causeway
