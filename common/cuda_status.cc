// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

struct Meaning {
  absl::StatusCode code;
  // The advice to the user; empty if there is none.
  std::string advice;
};

// Returns a CUDA release number as people write it: 13000 is 13.0.
std::string Release(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// The runtime reports the same error for a driver that is too old and for none.
std::string DriverAdvice() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return "; there is no NVIDIA driver here (libcuda.so.1), or the container "
           "is not given the host's: see nvidia-smi";
  }
  return absl::StrCat("; the NVIDIA driver is for CUDA ", Release(driver),
                      ", this program for CUDA ", Release(runtime),
                      ": install a newer driver");
}

Meaning MeaningOf(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return {absl::StatusCode::kFailedPrecondition,
              "; check nvidia-smi and CUDA_VISIBLE_DEVICES"};
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorCompatNotSupportedOnDevice:
      return {absl::StatusCode::kFailedPrecondition, DriverAdvice()};
    case cudaErrorStubLibrary:
      return {absl::StatusCode::kFailedPrecondition,
              "; the toolkit's stub of libcuda.so.1 was loaded instead of the "
              "driver's: take it from LD_LIBRARY_PATH"};
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
              "; another process may have exclusive use of the device"};
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
      return {absl::StatusCode::kDataLoss,
              "; the device's memory had an error that it could not correct: "
              "results since the last checkpoint may be wrong, and the device "
              "needs a reset (nvidia-smi -q -d ECC)"};
    case cudaErrorNvlinkUncorrectable:
      return {absl::StatusCode::kDataLoss,
              "; a link between GPUs had an error that it could not correct: "
              "see nvidia-smi nvlink -e, and reset the GPUs"};
    case cudaErrorHardwareStackError:
      return {absl::StatusCode::kInternal,
              "; the GPU may be damaged: see the kernel's log for Xid lines"};
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return {absl::StatusCode::kInternal,
              "; a bug in Causeway, or a fault of the GPU: see the kernel's "
              "log for Xid lines"};
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
      return {absl::StatusCode::kFailedPrecondition,
              "; these GPUs do not reach each other's memory: see nvidia-smi "
              "topo -p2p r"};
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
    case cudaErrorMpsClientTerminated:
      return {absl::StatusCode::kUnavailable,
              "; see the CUDA MPS server's log, or stop it"};
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

absl::Status OfCudaDevice(int device, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("cuda:", device, ": ", status.message()));
}

}  // namespace causeway
