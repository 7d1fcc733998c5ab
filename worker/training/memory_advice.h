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

// One of the ranks of an island.
struct RankShare {
  int ranks = 1;
  // Whether the outer loop's anchors are on its device, too.
  bool anchors_on_device = false;
  // RankTrainerOptions.bf16_gradients.
  bool bf16_gradients = false;
};

// Bytes that a rank takes of its device to train: model, gradients, optimizer
// and activations, what the outer loop has there, and a reserve for what
// operations need for themselves.
int64_t TrainingBytes(const v1::RunConfig& config, const RankShare& share,
                      Ops* ops);

// One sentence about a rank that has `free_bytes`, too few for `config`, which
// is resolved: the largest training.micro_batch_size that would fit, as it is
// or with training.recompute_activations; or that none does.
std::string MemoryAdvice(const v1::RunConfig& config, const RankShare& share,
                         int64_t free_bytes, Ops* ops);

}  // namespace causeway

#endif  // WORKER_TRAINING_MEMORY_ADVICE_H_
