// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_schedule.h"

#include <algorithm>

namespace causeway {
namespace {

double Ratio(uint64_t a, uint64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

}  // namespace

OuterRates OuterSchedule::At(uint64_t version) const {
  OuterRates rates{.learning_rate = static_cast<float>(learning_rate),
                   .momentum = static_cast<float>(momentum)};
  const uint64_t round = version + 1;
  const uint64_t warm = std::max<uint64_t>(learning_rate_warmup_rounds, 1);
  if (round < warm) {
    rates.learning_rate =
        static_cast<float>(learning_rate * Ratio(round, warm));
  } else if (rounds > warm) {
    const double course = Ratio(std::min(round, rounds) - warm, rounds - warm);
    rates.learning_rate = static_cast<float>(
        learning_rate * (1 - (1 - final_learning_rate_ratio) * course));
  }
  if (version < momentum_warmup_rounds) {
    rates.momentum = static_cast<float>(
        initial_momentum +
        (momentum - initial_momentum) * Ratio(version, momentum_warmup_rounds));
  }
  return rates;
}

OuterSchedule MakeOuterSchedule(const v1::OuterOptimizerConfig& config,
                                uint64_t rounds) {
  return {.learning_rate = config.learning_rate(),
          .momentum = config.momentum(),
          .learning_rate_warmup_rounds = config.learning_rate_warmup_rounds(),
          .final_learning_rate_ratio = config.final_learning_rate_ratio(),
          .momentum_warmup_rounds = config.momentum_warmup_rounds(),
          .initial_momentum = config.initial_momentum(),
          .rounds = rounds};
}

}  // namespace causeway
