// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Advice for users whose model does not fit into a rank's device: the memory
// that it needs, and a configuration that fits.
#ifndef WORKER_TRAINING_MEMORY_ADVICE_H_
#define WORKER_TRAINING_MEMORY_ADVICE_H_

#include <cstdint>
#include <string>

#include "proto/run_config.pb.h"
#include "worker/model/ops.h"

namespace causeway {

// The size of a rank's share in an island.
struct RankShare {
  int ranks = 1;
  // Is true if the outer loop's anchors are also on the rank's device.
  bool anchors_on_device = false;
  // See PartDevice::Options.
  bool reserves = false;
};

// Returns the bytes that a rank needs on its device: for model, gradients,
// optimizer, activations and outer loop, and a reserve for operations.
int64_t TrainingBytes(const v1::RunConfig& config, const RankShare& share,
                      Ops* ops);

// Returns a sentence for a rank whose `free_bytes` do not suffice for the
// resolved `config`. It names the largest training.micro_batch_size that fits,
// if necessary with training.recompute_activations, or says that none does.
std::string MemoryAdvice(const v1::RunConfig& config, const RankShare& share,
                         int64_t free_bytes, Ops* ops);

}  // namespace causeway

#endif  // WORKER_TRAINING_MEMORY_ADVICE_H_
