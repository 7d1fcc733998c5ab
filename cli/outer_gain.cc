// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/outer_gain.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;

// The rounds of a run that a momentum may remember, as a share.
constexpr double kMostMemory = 0.2;

// rho at H and H at it.
constexpr double kShortRound = 16;
constexpr double kShortCorrelation = 0.56;
constexpr double kLongRound = 64;
constexpr double kLongCorrelation = 0.29;

double Correlation(const v1::RunConfig& config) {
  const double steps = config.synchronization().inner_steps_per_round();
  const double place =
      std::log(steps / kShortRound) / std::log(kLongRound / kShortRound);
  return kShortCorrelation +
         (kLongCorrelation - kShortCorrelation) * std::clamp(place, 0.0, 1.0);
}

// Returns the effective rate over the learning rate.
double Gain(const Outer& outer, double momentum, double correlation) {
  if (outer.algorithm() == Outer::SGD) return 1;
  const double lasting = 1 / (1 - momentum * correlation);
  return outer.algorithm() == Outer::HEAVY_BALL ? lasting
                                                : 1 + momentum * lasting;
}

// Returns the momentum that has this gain; outside of [0, 1) if none has.
double MomentumOf(const Outer& outer, double gain, double correlation) {
  if (outer.algorithm() == Outer::HEAVY_BALL) {
    return (1 - 1 / gain) / correlation;
  }
  return (gain - 1) / (1 + (gain - 1) * correlation);
}

}  // namespace

double EffectiveOuterRate(const v1::RunConfig& config) {
  const Outer& outer = config.outer_optimizer();
  return outer.learning_rate() *
         Gain(outer, outer.momentum(), Correlation(config));
}

std::string OuterGainAdvice(const v1::RunConfig& config, uint64_t rounds) {
  const Outer& outer = config.outer_optimizer();
  const double rate = EffectiveOuterRate(config);
  const double correlation = Correlation(config);
  const uint32_t islands = config.membership().min_islands();
  std::string text = absl::StrFormat("effective rate %.2f", rate);
  if (outer.algorithm() != Outer::SGD) {
    absl::StrAppendFormat(&text, " (learning rate %g, momentum %g, H %d)",
                          outer.learning_rate(), outer.momentum(),
                          config.synchronization().inner_steps_per_round());
  }
  if (outer.merge() == Outer::MEAN) {
    const double least = islands > 1 ? 0.7 : 1.0;
    const double most = islands > 1 ? 2.5 : 1.6;
    const double want = std::clamp(rate, least, most);
    absl::StrAppendFormat(&text, "; tuned runs of %s have %.1f to %.1f",
                          islands > 1 ? "several islands" : "one island", least,
                          most);
    if (rate != want) {
      absl::StrAppendFormat(&text, ": learning_rate %.2g would",
                            outer.learning_rate() * want / rate);
      const double momentum =
          MomentumOf(outer, want / outer.learning_rate(), correlation);
      if (outer.algorithm() != Outer::SGD && momentum >= 0 && momentum < 0.95) {
        absl::StrAppendFormat(&text, ", or momentum %.2g", momentum);
      }
    }
  }
  const double memory = 1 / (1 - outer.momentum());
  const double most_memory =
      std::max(1.0, kMostMemory * static_cast<double>(rounds));
  if (outer.algorithm() != Outer::SGD && memory > most_memory) {
    absl::StrAppendFormat(
        &text,
        "; the momentum remembers %.2g of only %d rounds: at most %.2g suits "
        "these",
        memory, rounds, 1 - 1 / most_memory);
  }
  return text;
}

}  // namespace causeway
