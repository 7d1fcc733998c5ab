// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inner training with one rank: gradient accumulation over micro-batches, one
// AdamW update per step, on the CPU.
//
// The AdamW moments belong to this process: they start from zero when an island
// (re)joins, and the outer loop never touches them. The learning rate follows
// the run's step.
#ifndef WORKER_SINGLE_RANK_TRAINER_H_
#define WORKER_SINGLE_RANK_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/run_config.pb.h"
#include "worker/inner_trainer.h"

namespace causeway {

struct SingleRankTrainerOptions {
  // Text or token files, as the run's tokenizer wants.
  std::vector<std::string> data;
  uint32_t shard = 0;
  int threads = 1;
};

// `config` is resolved; `parameters` are the whole model's. Errors of
// OpenDataset (the data does not fit the run) and of Transformer::Create
// (memory).
absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeSingleRankTrainer(
    const v1::RunConfig& config, const SingleRankTrainerOptions& options,
    std::vector<float> parameters);

}  // namespace causeway

#endif  // WORKER_SINGLE_RANK_TRAINER_H_
