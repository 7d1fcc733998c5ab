// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of the inner optimizer.
#ifndef WORKER_OPTIMIZER_LEARNING_RATE_H_
#define WORKER_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

#include "proto/run_config.pb.h"

namespace causeway {

// Returns the learning rate of the run's inner step `run_step` (from 0). It
// depends on the run's position, not on the age of a process, so that an island
// that joins late trains at the same rate as the others.
//
// With w = warmup_steps and n = total_steps, it is peak * (run_step + 1) / w
// for run_step < w. Then, for COSINE, it falls from the peak at step w to peak
// * min_learning_rate_ratio at step n along half a cosine, and stays there; for
// CONSTANT it is the peak. `config` must have been validated.
double LearningRate(const v1::TrainingConfig& config, uint64_t run_step);

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_LEARNING_RATE_H_
