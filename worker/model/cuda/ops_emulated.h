// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend with its kernels run by device_emulator.h, in memory of the
// host, and with plain loops for cuBLASLt: for tests of the kernels on machines
// without a GPU.
#ifndef WORKER_MODEL_CUDA_OPS_EMULATED_H_
#define WORKER_MODEL_CUDA_OPS_EMULATED_H_

#include <memory>

#include "worker/model/ops.h"

namespace causeway {

std::unique_ptr<Ops> MakeEmulatedOps();

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_OPS_EMULATED_H_
