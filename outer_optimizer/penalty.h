// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The penalty of pseudo-gradients, tensor by tensor: contributions with
// unusually large norms lose weight in their round. It depends only on ratios
// of norms.
//
// The share w_i of a contribution with the norm n_i, where M is the median of
// the round's norms, becomes
//
//   w_i f_i / (sum of w_j f_j),   f_i = min(1, M / n_i)^power
//
// f_i is at most 1, so that a contribution that has hardly trained does not
// dominate the round. With power 1 a contribution moves the tensor no further
// than a contribution of the median norm and the same share would; with 2 and
// above, the larger its norm, the less it moves the tensor. If no norm is above
// the median, as with two equal norms, the shares keep their bits.
//
// In addition, membership.outlier_factor excludes contributions by the norm of
// the whole fragment.
//
// Source: EDiT (arXiv 2412.07210) weighs by a softmax of the negative norms,
// which depends on their unit.
#ifndef OUTER_OPTIMIZER_PENALTY_H_
#define OUTER_OPTIMIZER_PENALTY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

// Norms below this count as zeros, which the median ignores.
inline constexpr double kLeastTensorNorm = 0x1p-100;

// Returns the shares in a tensor where the contributions have `norms`. A power
// of 0 changes nothing. Changed shares add up to 1, up to rounding.
std::vector<double> PenalizedShares(uint32_t power,
                                    absl::Span<const float> shares,
                                    absl::Span<const double> norms);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_PENALTY_H_
