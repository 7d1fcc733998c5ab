// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/tensor_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/tensors/tensors_layout.h"
#include "outer_optimizer/penalty.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {
namespace {

// Directions cancel if |u| is below this.
constexpr double kLeastDirection = 0x1p-20;

bool TakesMean(const v1::RunConfig& config, const std::string& name) {
  return config.has_tensors()
             ? MatchesAny(config.tensors().mean_only(), name)
             : name == "model.embed_tokens.weight" || name == "lm_head.weight";
}

// Computes the Euclidean norms of the tensors in encoded vectors or their sums,
// a tile at a time. Squares are summed in double over tiles, pieces and
// tensors, each in order, so that no bit depends on the number of threads.
class TensorNorms {
 public:
  // `tensors`, ascending and disjoint, are in vectors of `values` values. The
  // pool must outlive it.
  TensorNorms(absl::Span<const ValueRange> tensors, uint64_t values,
              ThreadPool& pool);

  // Return the norm of each tensor in a contribution, or in the weighted sum of
  // contributions. A value that is not finite gives NaN or infinity.
  std::vector<double> Of(const Decoder& contribution) const;
  std::vector<double> OfSum(const Contributions& contributions,
                            const MergeWeights& weights) const;

 private:
  // The part of a tensor that lies in one strip.
  struct Piece {
    size_t tensor = 0;
    ValueRange values;
  };

  // `new_reader` makes a function object for each thread, which writes values
  // [begin, begin + size) of the vector to a span.
  template <typename NewReader>
  std::vector<double> Read(const NewReader& new_reader) const;

  // Adds the squares of the values that `read` writes for the tiles of `strip`
  // to `sums`, which has an entry for each piece.
  template <typename Reader>
  void AddStrip(const ValueRange& strip, Reader& read,
                absl::Span<double> sums) const;
  size_t FirstPieceAt(uint64_t begin) const;

  const size_t tensors_;
  const uint64_t values_;
  ThreadPool& pool_;
  // In ascending order.
  std::vector<Piece> pieces_;
};

TensorNorms::TensorNorms(absl::Span<const ValueRange> tensors, uint64_t values,
                         ThreadPool& pool)
    : tensors_(tensors.size()), values_(values), pool_(pool) {
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const ValueRange& range = tensors[tensor];
    ForEachStripPart(range.begin, range.end - range.begin,
                     [&](uint64_t begin, uint64_t count) {
                       pieces_.push_back({tensor, {begin, begin + count}});
                     });
  }
}

std::vector<double> TensorNorms::Of(const Decoder& contribution) const {
  return Read([&] {
    return [cursor = contribution.NewCursor()](uint64_t begin,
                                               absl::Span<float> tile) {
      cursor->Decode(begin, tile);
    };
  });
}

std::vector<double> TensorNorms::OfSum(const Contributions& contributions,
                                       const MergeWeights& weights) const {
  return Read([&] {
    return [merge = std::make_unique<WeightedMerge>(contributions, weights)](
               uint64_t begin, absl::Span<float> tile) {
      merge->Sum(begin, tile);
    };
  });
}

template <typename NewReader>
std::vector<double> TensorNorms::Read(const NewReader& new_reader) const {
  std::vector<double> sums(pieces_.size());
  StripQueue strips(values_);
  pool_.Run([&](int) {
    auto reader = new_reader();
    while (const std::optional<ValueRange> strip = strips.Take()) {
      AddStrip(*strip, reader, absl::MakeSpan(sums));
    }
  });
  std::vector<double> norms(tensors_);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    norms[pieces_[i].tensor] += sums[i];
  }
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

template <typename Reader>
void TensorNorms::AddStrip(const ValueRange& strip, Reader& read,
                           absl::Span<double> sums) const {
  size_t piece = FirstPieceAt(strip.begin);
  std::array<float, WeightedMerge::kTileValues> tile;
  for (uint64_t begin = strip.begin; begin < strip.end; begin += tile.size()) {
    const uint64_t end = std::min(begin + tile.size(), strip.end);
    // Tiles with no tensor, as of embeddings that take the mean, are not read.
    if (piece == pieces_.size() || pieces_[piece].values.begin >= end) {
      continue;
    }
    read(begin, absl::MakeSpan(tile.data(), end - begin));
    for (; piece < pieces_.size(); ++piece) {
      const ValueRange& values = pieces_[piece].values;
      if (values.begin >= end) break;
      const uint64_t from = std::max(begin, values.begin);
      sums[piece] += SumOfSquares(tile.data() + (from - begin),
                                  std::min(end, values.end) - from);
      // The rest of the piece is in the next tile.
      if (values.end > end) break;
    }
  }
}

size_t TensorNorms::FirstPieceAt(uint64_t begin) const {
  const auto piece = std::partition_point(
      pieces_.begin(), pieces_.end(),
      [begin](const Piece& p) { return p.values.end <= begin; });
  return static_cast<size_t>(piece - pieces_.begin());
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
