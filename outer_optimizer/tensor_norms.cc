// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/tensor_norms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>

#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {

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

}  // namespace causeway
