// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns errors of the CUDA runtime into absl::Status.
//
//   RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream),
//                              "waiting for the encoded fragment"));
#ifndef COMMON_CUDA_STATUS_H_
#define COMMON_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace causeway {

// Returns OK for cudaSuccess; otherwise a status that says what failed, while
// `doing` what ("copying fragment 3"), and how to solve it:
//
//   FAILED_PRECONDITION  there is no device or no driver, or the driver is too
//                        old, or this binary has no code for the device, or
//                        devices do not reach each other's memory
//   RESOURCE_EXHAUSTED   the device's memory is full
//   UNAVAILABLE          another process has the device for itself, or MPS
//                        does not let this process in
//   DATA_LOSS            the device's memory (ECC) or link has an error
//   INTERNAL             any other error, which is a bug of ours
//
// Clears the runtime's record of the error, so that the next call does not
// report it again; errors that break the device's context stay. Thread-safe.
absl::Status CudaStatus(cudaError_t error, absl::string_view doing);

// Returns the error with the device's name prefixed ("cuda:1: ...").
absl::Status OfCudaDevice(int device, const absl::Status& status);

}  // namespace causeway

#endif  // COMMON_CUDA_STATUS_H_
