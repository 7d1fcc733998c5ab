// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/merge.h"

namespace causeway {
namespace {

double Weight(v1::OuterOptimizerConfig::Weighting weighting,
              const Effort& effort) {
  if (weighting == v1::OuterOptimizerConfig::UNIFORM) return 1;
  const double tokens = static_cast<double>(effort.tokens);
  if (weighting != v1::OuterOptimizerConfig::TOKENS_SQUARED_PER_STEP) {
    return tokens;
  }
  return tokens * (tokens / static_cast<double>(effort.inner_steps));
}

}  // namespace

std::vector<float> MergeShares(v1::OuterOptimizerConfig::Weighting weighting,
                               absl::Span<const Effort> efforts) {
  std::vector<double> weights;
  double sum = 0;
  for (const Effort& effort : efforts) {
    weights.push_back(Weight(weighting, effort));
    sum += weights.back();
  }
  std::vector<float> shares;
  for (const double weight : weights) {
    shares.push_back(static_cast<float>(weight / sum));
  }
  return shares;
}

}  // namespace causeway
