// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/penalty.h"

#include <algorithm>

namespace causeway {
namespace {

// Returns the median, the mean of two middle values; 0 if there are none.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2;
  const size_t lower = (values.size() - 1) / 2;
  return (values[lower] + values[upper]) / 2;
}

}  // namespace

std::vector<double> PenalizedShares(uint32_t power,
                                    absl::Span<const float> shares,
                                    absl::Span<const double> norms) {
  std::vector<double> penalized(shares.begin(), shares.end());
  std::vector<double> trained;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0 && norms[i] >= kLeastTensorNorm) {
      trained.push_back(norms[i]);
    }
  }
  const double median = Median(std::move(trained));
  double sum = 0;
  bool changed = false;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (norms[i] > median && median > 0) {
      for (uint32_t times = 0; times < power; ++times) {
        penalized[i] *= median / norms[i];
        changed = true;
      }
    }
    sum += penalized[i];
  }
  if (!changed) return penalized;
  for (double& share : penalized) share /= sum;
  return penalized;
}

}  // namespace causeway
