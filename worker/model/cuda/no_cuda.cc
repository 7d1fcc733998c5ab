// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replaces ops_cuda.cu in programs that are built without CUDA.
#include "absl/status/status.h"
#include "worker/model/cuda/ops_cuda.h"

namespace causeway {
namespace {

absl::Status NotBuiltIn() {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it with --config=cuda on a "
      "machine with the CUDA toolkit, or use --device=cpu");
}

}  // namespace

absl::StatusOr<int> CountCudaDevices() { return NotBuiltIn(); }

bool CudaPeersReach(int /*device*/, int /*other*/) { return false; }

absl::StatusOr<std::string> DescribeCudaDevice(int /*device*/) {
  return NotBuiltIn();
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(
    int /*device*/, const CudaOpsOptions& /*options*/) {
  return NotBuiltIn();
}

}  // namespace causeway
