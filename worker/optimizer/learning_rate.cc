// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/learning_rate.h"

#include <cmath>
#include <numbers>

namespace causeway {

double LearningRate(const v1::TrainingConfig& config, uint64_t run_step) {
  const double peak = config.learning_rate();
  const double step = static_cast<double>(run_step);
  const double warmup = static_cast<double>(config.warmup_steps());
  const double total = static_cast<double>(config.total_steps());
  if (run_step < config.warmup_steps()) return peak * (step + 1) / warmup;
  if (config.schedule() == v1::TrainingConfig::CONSTANT) return peak;
  const double least = peak * config.min_learning_rate_ratio();
  if (run_step >= config.total_steps()) return least;
  const double progress = (step - warmup) / (total - warmup);
  return least +
         (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace causeway
