// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The penalty of pseudo-gradients, tensor by tensor: contributions that are
// unusually long lose weight in their round, and what a round merges is cut to
// a multiple of what was merged lately. Both go by norms only, and neither
// depends on a unit.
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
// The merged pseudo-gradient, of norm G, is scaled by min(1, clip * U / G). U
// is the median over those of the last kRounds rounds that merged something,
// after their cut. With fewer than kLeast of these nothing is cut.
//
// This is beside membership.outlier_factor, which keeps contributions out
// altogether, by the norm of the whole fragment.
//
// Sources: EDiT (arXiv 2412.07210) weighs by a softmax of the negative norms,
// which depends on their unit, and clips the combined delta; Di-PS (NSDI '26)
// cuts it by its history.
#ifndef OUTER_OPTIMIZER_PENALTY_H_
#define OUTER_OPTIMIZER_PENALTY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

struct Penalty {
  // The most rounds that U is the median of, and the least.
  static constexpr size_t kRounds = 16;
  static constexpr size_t kLeast = 4;

  // 0 leaves the shares as they are.
  uint32_t power = 0;
  // 0 cuts nothing.
  double clip = 0;

  bool enabled() const { return power > 0 || clip > 0; }
};

// Norms below this count as zeros, which do not show what is usual.
inline constexpr double kLeastTensorNorm = 0x1p-100;

// Returns the shares in one tensor in which the contributions have `norms`.
// They add up to 1 up to rounding, unless none is changed.
std::vector<double> PenalizedShares(uint32_t power,
                                    absl::Span<const float> shares,
                                    absl::Span<const double> norms);

// Returns the factor of a tensor's merged pseudo-gradient, in (0, 1]. `history`
// has the norms of the tensor in the last rounds, in any order, with zeros for
// rounds that are not known.
double ClipFactor(double clip, double norm, absl::Span<const float> history);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_PENALTY_H_
