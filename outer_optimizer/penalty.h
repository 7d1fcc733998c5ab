// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The penalty of pseudo-gradients, tensor by tensor: contributions that are
// unusually long lose weight in their round. It goes by norms only and does not
// depend on a unit.
//
// The share w_i of a contribution with the norm n_i, where M is the median of
// the round's norms, becomes
//
//   w_i f_i / (sum of w_j f_j),   f_i = min(1, M / n_i)^power
//
// A contribution counts at most in full, so that one that has hardly trained
// does not rule the round. With power 1 nobody moves the tensor further than a
// contribution of the median norm with its tokens; with 2 and above the longer
// it is, the less it moves. If no norm is above the median, which two equal
// norms are not, the shares keep their bits.
//
// This is beside membership.outlier_factor, which keeps contributions out
// altogether, by the norm of the whole fragment.
//
// Source: EDiT (arXiv 2412.07210) weighs by a softmax of the negative norms,
// which depends on their unit.
#ifndef OUTER_OPTIMIZER_PENALTY_H_
#define OUTER_OPTIMIZER_PENALTY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

// Norms below this count as zeros, which do not show what is usual.
inline constexpr double kLeastTensorNorm = 0x1p-100;

// Returns the shares in one tensor in which the contributions have `norms`. A
// power of 0 leaves them as they are. They add up to 1 up to rounding, unless
// none is changed.
std::vector<double> PenalizedShares(uint32_t power,
                                    absl::Span<const float> shares,
                                    absl::Span<const double> norms);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_PENALTY_H_
