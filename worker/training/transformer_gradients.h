// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The gradients of the run's transformer on the island's shard of the data.
#ifndef WORKER_TRAINING_TRANSFORMER_GRADIENTS_H_
#define WORKER_TRAINING_TRANSFORMER_GRADIENTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/run_config.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/ops.h"
#include "worker/training/gradient_source.h"

namespace causeway {

// Micro-batch n starts at sequence n * micro_batch_size of the shard's series
// (worker/data/sampler.h). `config` is resolved; `ops` outlives the object.
// Errors are those of Sampler::Create and Transformer::Create (out of memory).
absl::StatusOr<std::unique_ptr<GradientSource>> MakeTransformerGradients(
    const v1::RunConfig& config, std::shared_ptr<const Dataset> dataset,
    uint32_t shard, uint32_t data_order, Ops* ops);

}  // namespace causeway

#endif  // WORKER_TRAINING_TRANSFORMER_GRADIENTS_H_
