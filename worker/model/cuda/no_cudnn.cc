// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replaces cudnn_attention.cc where devices are emulated, because cuDNN needs
// real ones.
#include "worker/model/cuda/cudnn_attention.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(
    cudaStream_t /*stream*/) {
  return absl::FailedPreconditionError("the emulator has no cuDNN");
}

}  // namespace causeway
