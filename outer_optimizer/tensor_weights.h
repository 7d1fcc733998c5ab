// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weights of the contributions v_i to a round, tensor by tensor, where they
// differ from the shares w_i: for the penalty of large norms
// (outer_optimizer/penalty.h), and for radial-directional averaging.
//
// Radial-directional averaging treats the lengths and the directions of the
// contributions separately:
//
//   g = (sum of w_i |v_i|) unit(u),  u = sum of w_i unit(v_i)
//
// The mean of many long vectors that are nearly orthogonal is short. This
// average keeps the length of a single contribution, however many there are.
//
// g is a weighted sum of the contributions. This file finds the weights,
//
//   radial   c_i = w_i / |v_i| * (sum of w_j |v_j|) / |u|
//   mean     c_i = w_i
//
// with the penalized shares as w_i. It takes two passes over the contributions
// with radial tensors, and one without. For formats of few bits, that is little
// compared with the step itself.
//
// Degenerate cases of radial tensors: a contribution of zeros has no direction,
// but its share makes g shorter. If the directions cancel (|u| is below 2^-20,
// the rounding error of opposite directions), or there are none, g is 0. A
// single contribution is not changed.
//
// Source: Decoupled DiLoCo (arXiv 2604.21428), which uses it for all tensors
// except embeddings.
#ifndef OUTER_OPTIMIZER_TENSOR_WEIGHTS_H_
#define OUTER_OPTIMIZER_TENSOR_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/weighted_merge.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The merge of the fragment's tensors that have weights of their own.
struct TensorMerge {
  // Ascending and disjoint. With a penalty, these are all tensors.
  std::vector<ValueRange> tensors;
  // For each tensor, whether it is merged radial-directionally.
  std::vector<bool> radial;
  uint32_t penalty_power = 0;
};

// Merges all matrices radial-directionally except embedding and head, or what
// tensors.mean_only matches. Their rows belong to tokens, and a contribution
// has seen some tokens more often than others. Norm gains also take the mean:
// each value scales one channel, so together they have no direction, and they
// are too few for their mean to get short.
TensorMerge MakeTensorMerge(const v1::RunConfig& config,
                            const v1::Fragment& fragment);

// Returns c_i for each of the tensors, and the shares outside of them. The bits
// do not depend on the number of threads. A contribution that is not finite
// gives NaN.
MergeWeights TensorWeights(const TensorMerge& merge,
                           const Contributions& contributions,
                           std::vector<float> shares, uint64_t values,
                           ThreadPool& pool);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_TENSOR_WEIGHTS_H_
