// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/similarity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "glog/logging.h"

namespace causeway {
namespace {

// Below this, pairs are lost in the rounding of |g|^2 to fp32.
constexpr double kLeastPairs = 1e-4;

double Square(double x) { return x * x; }

// Returns |x_i|^2 of contribution i.
double PartSquare(const MergeWeights& weights, size_t i, double norm) {
  const size_t count = weights.shares.size();
  double outside = Square(norm);
  double inside = 0;
  for (size_t tensor = 0; tensor < weights.tensors.size(); ++tensor) {
    const size_t at = tensor * count + i;
    const double square = Square(weights.tensor_norms[at]);
    outside -= square;
    inside += Square(weights.tensor_weights[at]) * square;
  }
  // All of the vector may be in tensors; then only rounding is left outside.
  return inside + Square(weights.shares[i]) * std::max(outside, 0.0);
}

}  // namespace

std::optional<double> Similarity(const MergeWeights& weights,
                                 absl::Span<const double> norms,
                                 double gradient_norm) {
  CHECK_EQ(norms.size(), weights.shares.size());
  double sum = 0;
  double squares = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const double square = PartSquare(weights, i, norms[i]);
    squares += square;
    sum += std::sqrt(square);
  }
  const double pairs = Square(sum) - squares;
  if (!(pairs > kLeastPairs * squares) || !std::isfinite(pairs) ||
      !std::isfinite(gradient_norm)) {
    return std::nullopt;
  }
  return std::clamp((Square(gradient_norm) - squares) / pairs, -1.0, 1.0);
}

}  // namespace causeway
