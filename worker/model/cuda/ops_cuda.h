// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of worker/model/ops.h on an NVIDIA GPU: the kernels of
// kernel_ops.h, cuBLASLt and, for attention, cuDNN where there is one.
// Activations are bf16, sums fp32; the same calls give the same bits on the
// same kind of device with the same libraries.
#ifndef WORKER_MODEL_CUDA_OPS_CUDA_H_
#define WORKER_MODEL_CUDA_OPS_CUDA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/ops.h"

namespace causeway {

// Returns the number of GPUs that this process sees, at least one. Errors are
// those of MakeCudaOps.
absl::StatusOr<int> CountCudaDevices();

// Returns the GPU's name and memory: "NVIDIA H200 (140 GiB)". Errors are those
// of MakeCudaOps.
absl::StatusOr<std::string> DescribeCudaDevice(int device);

// Returns whether `device` can directly read the memory of `other`.
bool CudaPeersReach(int device, int other);

// Measures the time for which the device was busy with an operation or, if that
// takes several kernels, with one of them.
struct OperationTime {
  double seconds = 0;
  int64_t calls = 0;
  // Counts the multiplications and additions of matrix products; 0 for others.
  double floating_point_operations = 0;
};
using OperationTimes = std::map<std::string, OperationTime>;

struct CudaOpsOptions {
  // If not null, Synchronize adds the times of the operations before it there,
  // and Replay makes no graphs. It must outlive the object.
  OperationTimes* times = nullptr;
  // False is for comparisons.
  bool may_use_cudnn = true;
};

// Returns the operations on device `device` (from 0, among those that
// CUDA_VISIBLE_DEVICES shows), with a stream of their own. Several objects may
// share a device, and may use each other's results after Synchronize. Different
// threads may use an object, one at a time.
//   INVALID_ARGUMENT     there is no such device.
//   FAILED_PRECONDITION  no driver, or one that is too old, no cuBLASLt, or a
//                        device of compute capability below 8.0.
//   RESOURCE_EXHAUSTED   its memory is taken.
// A program without CUDA links no_cuda.cc, which always returns
// FAILED_PRECONDITION.
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(
    int device, const CudaOpsOptions& options = {});

// Returns OK if cuDNN computes both passes of attention of this shape. `ops` is
// from MakeCudaOps.
//   FAILED_PRECONDITION  there is no cuDNN, or it must not be used.
//   UNIMPLEMENTED        it does not take the shape.
absl::Status PrepareCudnn(const AttentionShape& shape, Ops& ops);

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_OPS_CUDA_H_
