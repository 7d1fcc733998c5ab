// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of the inner optimizer.
#ifndef WORKER_OPTIMIZER_LEARNING_RATE_H_
#define WORKER_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

#include "proto/run_config.pb.h"

namespace causeway {

// The learning rate of inner step `run_step` (from 0) of the run. It follows
// the run's position, not the age of a process, so that an island that joins
// late trains at the same rate as the others.
//
// With w = warmup_steps and n = total_steps: peak * (run_step + 1) / w for
// run_step < w. Then, for COSINE, from the peak at step w down to
// peak * min_learning_rate_ratio at step n along half a cosine, and that value
// from n on; for CONSTANT the peak. `config` must have been validated.
double LearningRate(const v1::TrainingConfig& config, uint64_t run_step);

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_LEARNING_RATE_H_
