// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Radial-directional averaging: the length and the direction of contributions
// v_i are averaged apart, tensor by tensor, with shares w_i that add up to 1:
//
//   g = (sum of w_i |v_i|) unit(u),  u = sum of w_i unit(v_i)
//
// The mean of many long vectors that are nearly orthogonal is short; this keeps
// the length that one contribution has, whatever their number.
//
// g is a weighted sum of the contributions, whose weights
//
//   c_i = w_i / |v_i| * (sum of w_j |v_j|) / |u|
//
// this file finds. That takes two passes over the contributions, which for
// formats of few bits is little beside the step itself.
//
// Degenerate cases: a contribution of zeros has no direction, but its share
// makes g shorter. Where the directions cancel (|u| below 2^-20, which is what
// rounding leaves of opposite ones), or where there is none, g is 0. One
// contribution alone is taken as it is.
//
// Source: Decoupled DiLoCo (arXiv 2604.21428), which uses it for all tensors
// but embeddings.
#ifndef OUTER_OPTIMIZER_RADIAL_MERGE_H_
#define OUTER_OPTIMIZER_RADIAL_MERGE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/thread_pool.h"
#include "outer_optimizer/weighted_merge.h"
#include "proto/fragment.pb.h"

namespace causeway {

// The tensors of a fragment that are merged this way: all matrices but
// embedding and head, whose rows belong to tokens, of which a contribution has
// seen some more often than others. Norm gains take the mean as well: their
// values scale one channel each and make up no direction together, and they are
// too few for their mean to get short.
std::vector<ValueRange> RadialTensors(const v1::Fragment& fragment);

// c_i for each of `tensors` (ascending and disjoint); outside of them the
// shares. The same bits for any number of threads. NaN where a contribution is
// not finite.
MergeWeights RadialWeights(const Contributions& contributions,
                           std::vector<float> shares,
                           std::vector<ValueRange> tensors, uint64_t values,
                           ThreadPool& pool);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_RADIAL_MERGE_H_
