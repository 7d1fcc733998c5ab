// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures how much the contributions to a round agree in direction, without
// another pass over their values. g is the sum of the contributions' parts x_i,
// each the contribution d_i times its weights
// (outer_optimizer/weighted_merge.h), so |g|^2 contains the products of all
// pairs:
//
//   similarity = sum of <x_i, x_j> / sum of |x_i| |x_j|     over all i < j
//              = (|g|^2 - sum of |x_i|^2) / ((sum of |x_i|)^2 - sum of |x_i|^2)
//
// This is the mean cosine over all pairs, weighted by the product of their
// norms. For two contributions to the weighted mean it is the cosine of d_1 and
// d_2. It is 1 if all have the same direction and 0 if they are orthogonal; for
// n parts of equal norm it is at least -1 / (n - 1).
//
// With weights by tensor, a tensor counts by its part of g, not of d_i.
#ifndef OUTER_OPTIMIZER_SIMILARITY_H_
#define OUTER_OPTIMIZER_SIMILARITY_H_

#include <optional>

#include "absl/types/span.h"
#include "outer_optimizer/weighted_merge.h"

namespace causeway {

// Returns the similarity, in [-1, 1]; none if all parts but one are too small
// for the norms' precision, or a norm is not a number. `norms` has the
// contributions' Euclidean norms, in the order of the weights; `gradient_norm`
// is the norm of g.
std::optional<double> Similarity(const MergeWeights& weights,
                                 absl::Span<const double> norms,
                                 double gradient_norm);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_SIMILARITY_H_
