// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tests of kernel_ops.h: every operation against the double reference, and
// a small model against the CPU backend. They are run in the emulator
// (kernel_ops_test.cc) and on a GPU (ops_cuda_test.cc). A test that links the
// suite defines NewOpsUnderTest().
#ifndef WORKER_MODEL_CUDA_OPS_SUITE_H_
#define WORKER_MODEL_CUDA_OPS_SUITE_H_

#include <memory>

#include "worker/model/ops.h"

namespace causeway {

// Null where there is no device: the tests are skipped then.
std::unique_ptr<Ops> NewOpsUnderTest();

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_OPS_SUITE_H_
