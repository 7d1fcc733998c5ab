// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Computes the Euclidean norms of the tensors in encoded vectors or their sums,
// a tile at a time. Squares are summed in double over tiles, pieces and
// tensors, each in order, so that no bit depends on the number of threads.
#ifndef OUTER_OPTIMIZER_TENSOR_NORMS_H_
#define OUTER_OPTIMIZER_TENSOR_NORMS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/weighted_merge.h"

namespace causeway {

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

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_TENSOR_NORMS_H_
