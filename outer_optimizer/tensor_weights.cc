// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/tensor_weights.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/tensors_layout.h"
#include "glog/logging.h"
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

// The norms that one tensor had in the last rounds.
std::vector<float> HistoryOf(size_t tensor, size_t tensors,
                             absl::Span<const float> norms) {
  std::vector<float> history;
  for (size_t at = tensor; at < norms.size(); at += tensors) {
    history.push_back(norms[at]);
  }
  return history;
}

// Appends a round's norms to the remembered ones. The oldest round's go.
void Remember(absl::Span<const float> newest, absl::Span<const float> old_norms,
              absl::Span<float> new_norms) {
  const absl::Span<float> kept =
      new_norms.first(new_norms.size() - newest.size());
  if (old_norms.empty()) {
    absl::c_fill(kept, 0.0f);
  } else {
    absl::c_copy(old_norms.subspan(newest.size()), kept.begin());
  }
  absl::c_copy(newest, new_norms.end() - newest.size());
}

}  // namespace

TensorMerge MakeTensorMerge(const v1::RunConfig& config,
                            const v1::Fragment& fragment) {
  const v1::OuterOptimizerConfig& outer = config.outer_optimizer();
  TensorMerge merge{.penalty = {.power = outer.penalty_power(),
                                .clip = outer.penalty_clip()}};
  for (const v1::TensorPlacement& tensor : fragment.tensors()) {
    const bool radial =
        outer.merge() == v1::OuterOptimizerConfig::RADIAL_DIRECTIONAL &&
        tensor.shape_size() >= 2 && !TakesMean(config, tensor.name());
    if (!radial && !merge.penalty.enabled()) continue;
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
                           absl::Span<const float> old_norms,
                           absl::Span<float> new_norms, ThreadPool& pool) {
  const size_t count = contributions.size();
  const size_t tensors = merge.tensors.size();
  CHECK_EQ(new_norms.size(), merge.merged_norms());
  MergeWeights weights{.shares = std::move(shares)};
  if (tensors == 0 || (count == 1 && merge.penalty.clip == 0)) return weights;
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
  const auto is_radial = [&](size_t t) { return merge.radial[t] && count > 1; };
  // sum of w_i |v_i| in radial tensors.
  std::vector<double> lengths(tensors);
  for (size_t t = 0; t < tensors; ++t) {
    const std::vector<double> penalized =
        PenalizedShares(merge.penalty.power, weights.shares, norms_in(t));
    for (size_t i = 0; i < count; ++i) {
      const double norm = norms_in(t)[i];
      lengths[t] += penalized[i] * norm;
      double weight = penalized[i];
      if (is_radial(t)) weight = norm < kLeastTensorNorm ? 0 : weight / norm;
      weights.tensor_weights[t * count + i] = static_cast<float>(weight);
    }
  }
  // |u| of radial tensors, and |g| of the others.
  std::vector<double> merged = reader.OfSum(contributions, weights);
  std::vector<float> newest;
  for (size_t t = 0; t < tensors; ++t) {
    double factor = 1;
    if (is_radial(t)) {
      factor = merged[t] < kLeastDirection ? 0.0 : lengths[t] / merged[t];
      merged[t] *= factor;
    }
    const double clip = ClipFactor(merge.penalty.clip, merged[t],
                                   HistoryOf(t, tensors, old_norms));
    newest.push_back(static_cast<float>(merged[t] * clip));
    factor *= clip;
    if (factor == 1) continue;
    for (size_t i = 0; i < count; ++i) {
      float& weight = weights.tensor_weights[t * count + i];
      weight = static_cast<float>(weight * factor);
    }
  }
  if (!new_norms.empty()) Remember(newest, old_norms, new_norms);
  return weights;
}

}  // namespace causeway
