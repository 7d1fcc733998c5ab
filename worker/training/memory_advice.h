// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// For people whose model does not fit into a rank's device: what it needs
// there, and what would fit.
#ifndef WORKER_TRAINING_MEMORY_ADVICE_H_
#define WORKER_TRAINING_MEMORY_ADVICE_H_

#include <cstdint>
#include <string>

#include "proto/run_config.pb.h"
#include "worker/model/ops.h"

namespace causeway {

// Bytes that a rank takes of its device to train: model, gradients, optimizer
// and activations, and a reserve for what operations need for themselves.
int64_t TrainingBytes(const v1::RunConfig& config, int ranks, Ops* ops);

// One sentence about a rank of `ranks` that has `free_bytes`, too few for
// `config`, which is resolved: the largest training.micro_batch_size that would
// fit, as it is or with training.recompute_activations; or that none does.
std::string MemoryAdvice(const v1::RunConfig& config, int ranks,
                         int64_t free_bytes, Ops* ops);

}  // namespace causeway

#endif  // WORKER_TRAINING_MEMORY_ADVICE_H_
