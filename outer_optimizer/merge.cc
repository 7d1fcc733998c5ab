// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/merge.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

absl::StatusOr<double> Weight(v1::OuterOptimizerConfig::Weighting weighting,
                              const Effort& effort) {
  const double tokens = static_cast<double>(effort.tokens);
  switch (weighting) {
    case v1::OuterOptimizerConfig::TOKENS:
      return tokens;
    case v1::OuterOptimizerConfig::UNIFORM:
      return 1.0;
    case v1::OuterOptimizerConfig::TOKENS_SQUARED_PER_STEP:
      if (effort.tokens == 0) return 0.0;
      if (effort.inner_steps == 0) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "a contribution has %d tokens but no inner steps", effort.tokens));
      }
      return tokens * (tokens / static_cast<double>(effort.inner_steps));
    case v1::OuterOptimizerConfig::WEIGHTING_UNSPECIFIED:
      break;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "outer_optimizer.weighting %d is not one of TOKENS, UNIFORM, "
      "TOKENS_SQUARED_PER_STEP",
      weighting));
}

}  // namespace

absl::StatusOr<std::vector<float>> MergeShares(
    v1::OuterOptimizerConfig::Weighting weighting,
    absl::Span<const Effort> efforts) {
  std::vector<double> weights;
  double sum = 0;
  for (const Effort& effort : efforts) {
    ASSIGN_OR_RETURN(const double weight, Weight(weighting, effort));
    weights.push_back(weight);
    sum += weight;
  }
  if (sum == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("nothing to merge: the %d contributions of the round "
                        "have no weight",
                        efforts.size()));
  }
  std::vector<float> shares;
  for (const double weight : weights) {
    shares.push_back(static_cast<float>(weight / sum));
  }
  return shares;
}

}  // namespace causeway
