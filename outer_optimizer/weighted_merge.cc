// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/weighted_merge.h"

#include <algorithm>

#include "glog/logging.h"

namespace causeway {

static_assert(WeightedMerge::kTileValues % kPieceAlignment == 0);
static_assert(kStripValues % WeightedMerge::kTileValues == 0);

WeightedMerge::WeightedMerge(const Contributions& contributions,
                             const MergeWeights& weights)
    : weights_(weights),
      sum_(contributions),
      decoded_(sum_.can_sum() && weights.tensors.empty() ? 0 : kTileValues) {
  CHECK_EQ(weights.shares.size(), contributions.size());
  CHECK_EQ(weights.tensor_weights.size(),
           weights.tensors.size() * contributions.size());
  for (const std::unique_ptr<Decoder>& contribution : contributions) {
    cursors_.push_back(contribution->NewCursor());
  }
}

WeightedMerge::Run WeightedMerge::RunAt(uint64_t begin) const {
  const auto tensor =
      std::upper_bound(weights_.tensors.begin(), weights_.tensors.end(), begin,
                       [](uint64_t value, const ValueRange& range) {
                         return value < range.end;
                       });
  if (tensor == weights_.tensors.end()) {
    return {weights_.shares.data(), UINT64_MAX};
  }
  if (begin < tensor->begin) return {weights_.shares.data(), tensor->begin};
  const size_t index = static_cast<size_t>(tensor - weights_.tensors.begin());
  return {weights_.tensor_weights.data() + index * cursors_.size(),
          tensor->end};
}

void WeightedMerge::Sum(uint64_t begin, absl::Span<float> merged) {
  CHECK_LE(merged.size(), kTileValues);
  const uint64_t end = begin + merged.size();
  if (const Run run = RunAt(begin); sum_.can_sum() && run.end >= end) {
    sum_.Sum(begin, {run.weights, cursors_.size()}, merged);
    return;
  }
  std::fill(merged.begin(), merged.end(), 0.0f);
  // Tensors begin anywhere, but decoding starts at multiples of
  // kPieceAlignment.
  const absl::Span<float> decoded =
      absl::MakeSpan(decoded_).first(merged.size());
  for (size_t i = 0; i < cursors_.size(); ++i) {
    cursors_[i]->Decode(begin, decoded);
    for (uint64_t at = begin; at < end;) {
      const Run run = RunAt(at);
      for (const uint64_t stop = std::min(run.end, end); at < stop; ++at) {
        merged[at - begin] += run.weights[i] * decoded[at - begin];
      }
    }
  }
}

std::optional<ValueRange> StripQueue::Take() {
  const uint64_t begin = kStripValues * next_.fetch_add(1);
  if (begin >= values_) return std::nullopt;
  return ValueRange{begin, std::min(begin + kStripValues, values_)};
}

}  // namespace causeway
