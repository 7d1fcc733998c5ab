// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of encoded contributions, a tile at a time:
//
//   merged[j] = sum over i of weight_i(j) * contribution_i[j], in order of i
//
// with each product and each sum rounded to fp32, starting from +0. No
// contribution is ever decoded as a whole, and the sum does not depend on the
// tiles.
//
//   WeightedMerge merge(contributions, weights);  // one per thread
//   merge.Sum(begin, absl::MakeSpan(merged));
//
// Threads share the work by strips, the units in which vectors are encoded.
#ifndef OUTER_OPTIMIZER_WEIGHTED_MERGE_H_
#define OUTER_OPTIMIZER_WEIGHTED_MERGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "quantization/codec.h"

namespace causeway {

// A half-open range of values of a fragment's vector.
struct ValueRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

// Decoders of the contributions, whose bytes they do not own.
using Contributions = std::vector<std::unique_ptr<Decoder>>;

struct MergeWeights {
  // Outside of `tensors`, one factor for each contribution.
  std::vector<float> shares;
  // Ascending and disjoint.
  std::vector<ValueRange> tensors;
  // Inside of `tensors`, contribution i has the factor tensor_weights[t *
  // shares.size() + i] in tensor t.
  std::vector<float> tensor_weights;
  // The Euclidean norms of the contributions in `tensors`, in the same order.
  std::vector<double> tensor_norms;
};

// Sums the contributions for one thread.
class WeightedMerge {
 public:
  // The number of values in a tile, which stays in the first-level cache. A
  // smaller tile would read too little of each contribution at a time.
  static constexpr uint64_t kTileValues = 4096;

  // Both arguments must outlive it and must not change.
  WeightedMerge(const Contributions& contributions,
                const MergeWeights& weights);

  // Writes the sum of values [begin, begin + merged.size()): at most a tile,
  // starting at a multiple of kPieceAlignment.
  void Sum(uint64_t begin, absl::Span<float> merged);

 private:
  // The weights of value `begin`, and the value at which other weights begin.
  struct Run {
    const float* weights;
    uint64_t end;
  };
  Run RunAt(uint64_t begin) const;

  const MergeWeights& weights_;
  SumCursor sum_;
  // For tiles with several weights, and for contributions whose formats differ.
  std::vector<std::unique_ptr<DecodeCursor>> cursors_;
  // One contribution's values of a tile.
  std::vector<float> decoded_;
};

// Hands the strips of a vector to threads, in order. Thread-safe.
class StripQueue {
 public:
  explicit StripQueue(uint64_t values) : values_(values) {}

  // Returns the next strip; none when all are taken.
  std::optional<ValueRange> Take();

 private:
  const uint64_t values_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_WEIGHTED_MERGE_H_
