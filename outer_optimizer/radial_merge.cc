// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/radial_merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/tensors_layout.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {
namespace {

// Directions cancel if |u| is below this.
constexpr double kLeastDirection = 0x1p-20;
// Contributions shorter than this count as zeros, so that 1 / |v_i| is an fp32.
constexpr double kLeastNorm = 0x1p-100;

// The part of a tensor that lies in one strip.
struct Piece {
  size_t tensor = 0;
  ValueRange values;
};

// The pieces are in ascending order.
std::vector<Piece> CutIntoPieces(absl::Span<const ValueRange> tensors) {
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const ValueRange& range = tensors[tensor];
    ForEachStripPart(range.begin, range.end - range.begin,
                     [&](uint64_t begin, uint64_t count) {
                       pieces.push_back({tensor, {begin, begin + count}});
                     });
  }
  return pieces;
}

// Sums of squares over tensors: in double over tiles, pieces and tensors, each
// in order, so that the sums do not depend on threads.
class TensorSums {
 public:
  explicit TensorSums(absl::Span<const ValueRange> tensors)
      : tensors_(tensors.size()), pieces_(CutIntoPieces(tensors)) {}

  // Writes values [begin, begin + size) of one vector to the span.
  using ReadTile = absl::FunctionRef<void(uint64_t, absl::Span<float>)>;

  // Adds the squares of the values that `read` writes for the tiles of `strip`
  // to `sums`, which has an entry for each piece.
  void AddStrip(const ValueRange& strip, ReadTile read,
                absl::Span<double> sums) const {
    size_t piece = FirstPieceAt(strip.begin);
    std::array<float, WeightedMerge::kTileValues> tile;
    for (uint64_t begin = strip.begin; begin < strip.end;
         begin += tile.size()) {
      const uint64_t end = std::min(begin + tile.size(), strip.end);
      // Strips with no tensor of this kind, as of embeddings, are not read.
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

  std::vector<double> OfTensors(absl::Span<const double> sums) const {
    std::vector<double> of_tensors(tensors_);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      of_tensors[pieces_[i].tensor] += sums[i];
    }
    return of_tensors;
  }

  size_t pieces() const { return pieces_.size(); }

 private:
  size_t FirstPieceAt(uint64_t begin) const {
    const auto piece = std::partition_point(
        pieces_.begin(), pieces_.end(),
        [begin](const Piece& p) { return p.values.end <= begin; });
    return static_cast<size_t>(piece - pieces_.begin());
  }

  const size_t tensors_;
  const std::vector<Piece> pieces_;
};

// Returns the norm of a vector of `values` values in each tensor. Each thread
// reads it by a reader of its own, which is called as ReadTile.
template <typename NewReader>
std::vector<double> NormsOf(const TensorSums& sums, uint64_t values,
                            ThreadPool& pool, const NewReader& new_reader) {
  std::vector<double> pieces(sums.pieces());
  StripQueue strips(values);
  pool.Run([&](int) {
    auto reader = new_reader();
    while (const std::optional<ValueRange> strip = strips.Take()) {
      sums.AddStrip(*strip, reader, absl::MakeSpan(pieces));
    }
  });
  std::vector<double> norms = sums.OfTensors(pieces);
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

}  // namespace

std::vector<ValueRange> RadialTensors(const v1::RunConfig& config,
                                      const v1::Fragment& fragment) {
  const auto takes_mean = [&](const std::string& name) {
    return config.has_tensors() ? MatchesAny(config.tensors().mean_only(), name)
                                : name == "model.embed_tokens.weight" ||
                                      name == "lm_head.weight";
  };
  std::vector<ValueRange> tensors;
  for (const v1::TensorPlacement& tensor : fragment.tensors()) {
    if (tensor.shape_size() < 2 || takes_mean(tensor.name())) continue;
    const uint64_t size =
        std::accumulate(tensor.shape().begin(), tensor.shape().end(),
                        uint64_t{1}, std::multiplies<>());
    tensors.push_back({tensor.offset(), tensor.offset() + size});
  }
  return tensors;
}

MergeWeights RadialWeights(const Contributions& contributions,
                           std::vector<float> shares,
                           std::vector<ValueRange> tensors, uint64_t values,
                           ThreadPool& pool) {
  const size_t count = contributions.size();
  MergeWeights weights{.shares = std::move(shares)};
  if (count == 1) return weights;
  weights.tensors = std::move(tensors);
  weights.tensor_weights.resize(weights.tensors.size() * count);
  const TensorSums sums(weights.tensors);
  // |v_i| in each tensor: [i][tensor].
  std::vector<std::vector<double>> norms;
  for (const std::unique_ptr<Decoder>& contribution : contributions) {
    norms.push_back(NormsOf(sums, values, pool, [&] {
      return [cursor = contribution->NewCursor()](uint64_t begin,
                                                  absl::Span<float> tile) {
        cursor->Decode(begin, tile);
      };
    }));
  }
  for (size_t tensor = 0; tensor < weights.tensors.size(); ++tensor) {
    for (size_t i = 0; i < count; ++i) {
      const double norm = norms[i][tensor];
      weights.tensor_weights[tensor * count + i] =
          norm < kLeastNorm ? 0.0f
                            : static_cast<float>(weights.shares[i] / norm);
    }
  }
  const std::vector<double> directions = NormsOf(sums, values, pool, [&] {
    return [merge = std::make_unique<WeightedMerge>(contributions, weights)](
               uint64_t begin, absl::Span<float> tile) {
      merge->Sum(begin, tile);
    };
  });
  for (size_t tensor = 0; tensor < weights.tensors.size(); ++tensor) {
    double length = 0;
    for (size_t i = 0; i < count; ++i) {
      length += weights.shares[i] * norms[i][tensor];
    }
    const double direction = directions[tensor];
    const double factor =
        direction < kLeastDirection ? 0.0 : length / direction;
    for (size_t i = 0; i < count; ++i) {
      float& weight = weights.tensor_weights[tensor * count + i];
      weight = static_cast<float>(weight * factor);
    }
  }
  return weights;
}

}  // namespace causeway
