// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Radial-directional averaging: the length and the direction of the
// contributions v_i are averaged separately, tensor by tensor, with shares w_i
// that add up to 1:
//
//   g = (sum of w_i |v_i|) unit(u),  u = sum of w_i unit(v_i)
//
// The mean of many long vectors that are nearly orthogonal is short. This
// average keeps the length of a single contribution, however many there are.
//
// g is a weighted sum of the contributions. This file finds the weights,
//
//   c_i = w_i / |v_i| * (sum of w_j |v_j|) / |u|
//
// in two passes over the contributions. For formats of few bits, that is little
// compared with the step itself.
//
// Degenerate cases: a contribution of zeros has no direction, but its share
// makes g shorter. If the directions cancel (|u| is below 2^-20, which is what
// rounding leaves of opposite directions), or there are none, g is 0. A single
// contribution is taken as it is.
//
// Source: Decoupled DiLoCo (arXiv 2604.21428), which uses it for all tensors
// except embeddings.
#ifndef OUTER_OPTIMIZER_RADIAL_MERGE_H_
#define OUTER_OPTIMIZER_RADIAL_MERGE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/thread_pool.h"
#include "outer_optimizer/weighted_merge.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Returns the tensors of a fragment that are merged this way: all matrices
// except embedding and head, or what tensors.mean_only matches. Rows of these
// belong to tokens, some of which a contribution has seen more often than
// others. Norm gains take the mean, too:
// each value scales one channel, so together they make up no direction, and
// they are too few for their mean to get short.
std::vector<ValueRange> RadialTensors(const v1::RunConfig& config,
                                      const v1::Fragment& fragment);

// Returns c_i for each of `tensors` (ascending and disjoint), and the shares
// outside of them. The bits do not depend on the number of threads. A
// contribution that is not finite gives NaN.
MergeWeights RadialWeights(const Contributions& contributions,
                           std::vector<float> shares,
                           std::vector<ValueRange> tensors, uint64_t values,
                           ThreadPool& pool);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_RADIAL_MERGE_H_
