// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of encoded contributions, a tile at a time:
//
//   merged[j] = sum over i of weight_i(j) * contribution_i[j], in order of i
//
// each product and each sum rounded to fp32, from +0. No contribution is ever
// expanded as a whole, and a value of the sum does not depend on the tiles.
//
//   WeightedMerge merge(contributions, weights);  // one per thread
//   merge.Sum(begin, absl::MakeSpan(merged));
//
// The work is dealt to threads by strips, which is what encodings are cut in.
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

// An opened contribution. Not owned by those who read it.
using Contributions = std::vector<std::unique_ptr<Decoder>>;

// What each contribution is multiplied by.
struct MergeWeights {
  // Outside of `tensors`, one for each contribution.
  std::vector<float> shares;
  // Ascending and disjoint.
  std::vector<ValueRange> tensors;
  // Inside of them: that of contribution i in tensor t is
  // tensor_weights[t * shares.size() + i].
  std::vector<float> tensor_weights;
};

// Reads the contributions for one thread.
class WeightedMerge {
 public:
  // Values in a tile, which stays in the first-level cache. Fewer would read
  // too little of each contribution at a time.
  static constexpr uint64_t kTileValues = 4096;

  // Both outlive it and hold still.
  WeightedMerge(const Contributions& contributions,
                const MergeWeights& weights);

  // Writes the sum of values [begin, begin + merged.size()): at most a tile,
  // from a multiple of kPieceAlignment on.
  void Sum(uint64_t begin, absl::Span<float> merged);

 private:
  // Weights of value `begin`, and where they end to hold.
  struct Run {
    const float* weights;
    uint64_t end;
  };
  Run RunAt(uint64_t begin) const;

  const MergeWeights& weights_;
  SumCursor sum_;
  // For tiles with several weights.
  std::vector<std::unique_ptr<DecodeCursor>> cursors_;
  // One contribution's values of such a tile.
  std::vector<float> decoded_;
};

// Deals the strips of a vector to threads, in order. Thread-safe.
class StripQueue {
 public:
  explicit StripQueue(uint64_t values) : values_(values) {}

  // The next strip; none when all are taken.
  std::optional<ValueRange> Take();

 private:
  const uint64_t values_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_WEIGHTED_MERGE_H_
