// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

struct Meaning {
  absl::StatusCode code;
  // What to do; empty if there is nothing to say.
  const char* advice;
};

Meaning MeaningOf(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return {absl::StatusCode::kFailedPrecondition,
              "; check nvidia-smi and CUDA_VISIBLE_DEVICES"};
    case cudaErrorInsufficientDriver:
      return {absl::StatusCode::kFailedPrecondition,
              "; install an NVIDIA driver that knows this CUDA release"};
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorInvalidDevice:
      return {absl::StatusCode::kFailedPrecondition, "; check nvidia-smi"};
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return {absl::StatusCode::kFailedPrecondition,
              "; this binary has code for compute capability 8.0, 9.0 and "
              "newer, the newest by way of the driver"};
    case cudaErrorMemoryAllocation:
      return {absl::StatusCode::kResourceExhausted, ""};
    case cudaErrorDevicesUnavailable:
      return {absl::StatusCode::kUnavailable,
              "; another process may have the device for itself"};
    case cudaErrorECCUncorrectable:
      return {
          absl::StatusCode::kDataLoss,
          "; results since the last checkpoint may be wrong, and the device "
          "needs a reset"};
    default:
      return {absl::StatusCode::kInternal, ""};
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const Meaning meaning = MeaningOf(error);
  return absl::Status(
      meaning.code, absl::StrCat(doing, ": ", cudaGetErrorString(error), " (",
                                 cudaGetErrorName(error), ")", meaning.advice));
}

}  // namespace causeway
