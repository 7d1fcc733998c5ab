// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention by NVIDIA's cuDNN, which is faster than attention_kernels.h
// but takes fewer shapes. The library is loaded when first needed, so that
// programs also run without it.
//
// Arrays are as for Ops::Attention, and log_sum_exp has the same meaning, so
// that either backend may compute the backward pass of the other's output.
// cuDNN's heuristic chooses a kernel once for each shape, among those whose
// sums have a fixed order: the same call gives the same bits.
#ifndef WORKER_MODEL_CUDA_CUDNN_ATTENTION_H_
#define WORKER_MODEL_CUDA_CUDNN_ATTENTION_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/ops.h"

namespace causeway {

enum class AttentionPass { kForward, kBackward };

// Not thread-safe: one thread at a time may use an object.
class CudnnAttention {
 public:
  // Returns device memory for one call, or null if there is not enough.
  using Scratch = absl::FunctionRef<void*(size_t bytes)>;

  virtual ~CudnnAttention() = default;

  // Chooses a kernel at the first call for a shape, and logs it; compiling it
  // takes about a second. If cuDNN does not compute the pass, the error says
  // why.
  virtual absl::Status Prepare(const AttentionShape& shape,
                               AttentionPass pass) = 0;

  // Start a pass, after preparing it if necessary. After an error the results
  // are undefined.
  virtual absl::Status Forward(const AttentionShape& shape, const void* qkv,
                               void* output, float* log_sum_exp,
                               Scratch scratch) = 0;
  virtual absl::Status Backward(const AttentionShape& shape, const void* qkv,
                                const void* output, const float* log_sum_exp,
                                const void* d_output, void* d_qkv,
                                Scratch scratch) = 0;
};

// Returns an object for the current device that works on `stream`.
//   FAILED_PRECONDITION  the library cannot be loaded or used; says why.
absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(
    cudaStream_t stream);

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_CUDNN_ATTENTION_H_
