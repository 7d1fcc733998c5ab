// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/tensor_weights.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/tensors/tensors_layout.h"
#include "outer_optimizer/penalty.h"
#include "outer_optimizer/tensor_norms.h"

namespace causeway {
namespace {

// Directions cancel if |u| is below this.
constexpr double kLeastDirection = 0x1p-20;

bool TakesMean(const v1::RunConfig& config, const std::string& name) {
  return config.has_tensors()
             ? MatchesAny(config.tensors().mean_only(), name)
             : name == "model.embed_tokens.weight" || name == "lm_head.weight";
}

}  // namespace

TensorMerge MakeTensorMerge(const v1::RunConfig& config,
                            const v1::Fragment& fragment) {
  const v1::OuterOptimizerConfig& outer = config.outer_optimizer();
  TensorMerge merge{.penalty_power = outer.penalty_power()};
  for (const v1::TensorPlacement& tensor : fragment.tensors()) {
    const bool radial =
        outer.merge() == v1::OuterOptimizerConfig::RADIAL_DIRECTIONAL &&
        tensor.shape_size() >= 2 && !TakesMean(config, tensor.name());
    if (!radial && merge.penalty_power == 0) continue;
    const uint64_t size =
        std::accumulate(tensor.shape().begin(), tensor.shape().end(),
                        uint64_t{1}, std::multiplies<>());
    merge.tensors.push_back({tensor.offset(), tensor.offset() + size});
    merge.radial.push_back(radial);
  }
  return merge;
}

MergeWeights TensorWeights(const TensorMerge& merge,
                           const Contributions& contributions,
                           std::vector<float> shares, uint64_t values,
                           ThreadPool& pool) {
  const size_t count = contributions.size();
  const size_t tensors = merge.tensors.size();
  MergeWeights weights{.shares = std::move(shares)};
  if (tensors == 0 || count == 1) return weights;
  weights.tensors = merge.tensors;
  weights.tensor_weights.resize(tensors * count);
  weights.tensor_norms.resize(tensors * count);
  const TensorNorms reader(weights.tensors, values, pool);
  for (size_t i = 0; i < count; ++i) {
    const std::vector<double> norms = reader.Of(*contributions[i]);
    for (size_t t = 0; t < tensors; ++t) {
      weights.tensor_norms[t * count + i] = norms[t];
    }
  }
  const auto norms_in = [&](size_t t) {
    return absl::MakeConstSpan(weights.tensor_norms).subspan(t * count, count);
  };
  // sum of w_i |v_i| in radial tensors.
  std::vector<double> lengths(tensors);
  for (size_t t = 0; t < tensors; ++t) {
    const std::vector<double> penalized =
        PenalizedShares(merge.penalty_power, weights.shares, norms_in(t));
    for (size_t i = 0; i < count; ++i) {
      const double norm = norms_in(t)[i];
      lengths[t] += penalized[i] * norm;
      double weight = penalized[i];
      if (merge.radial[t]) weight = norm < kLeastTensorNorm ? 0 : weight / norm;
      weights.tensor_weights[t * count + i] = static_cast<float>(weight);
    }
  }
  if (!absl::c_linear_search(merge.radial, true)) return weights;
  // |u| of radial tensors.
  const std::vector<double> merged = reader.OfSum(contributions, weights);
  for (size_t t = 0; t < tensors; ++t) {
    if (!merge.radial[t]) continue;
    const double factor =
        merged[t] < kLeastDirection ? 0.0 : lengths[t] / merged[t];
    for (size_t i = 0; i < count; ++i) {
      float& weight = weights.tensor_weights[t * count + i];
      weight = static_cast<float>(weight * factor);
    }
  }
  return weights;
}

}  // namespace causeway
