// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which training windows an island reads at which step.
//
// The island's sequences form one endless series: step s takes numbers
// s * batch_size .. (s + 1) * batch_size - 1 of it, and number n is window
// n mod W of epoch floor(n / W), where W is the number of windows of the
// island's shard. Each epoch visits every window once, in an order of its own
// (permutation.h, keyed by seed, shard and epoch).
//
// So a batch is a pure function of (seed, shard, step): it depends neither on
// the age of the process nor on how many ranks share the batch, and an island
// that comes back at step s goes on where it was.
//
// Immutable, thread-safe.
#ifndef WORKER_DATA_SAMPLER_H_
#define WORKER_DATA_SAMPLER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"

namespace causeway {

class Sampler {
 public:
  struct Options {
    uint64_t seed = 0;
    // The island's shard, 0 .. shards - 1 of the split.
    int64_t shard = 0;
    // Sequences of a step, over all ranks of the island.
    int64_t batch_size = 0;
    int64_t ranks = 1;
  };

  // `dataset` must outlive the sampler.
  //   INVALID_ARGUMENT  the split has no such shard, or batch_size is no
  //                     positive multiple of ranks.
  static absl::StatusOr<Sampler> Create(const Dataset* dataset,
                                        const Options& options);

  // Windows of an epoch.
  int64_t epoch_windows() const { return epoch_windows_; }

  // The index in the corpus of the first token of sequence number `number`.
  int64_t SequenceBegin(int64_t number) const;

  // Writes the sequences of `rank` at `step`: batch_size / ranks rows of
  // sequence_length tokens, row-major, and the token that follows each.
  void FillBatch(int64_t step, int64_t rank, absl::Span<int32_t> tokens,
                 absl::Span<int32_t> targets) const;

  // Writes sequences first, first + 1, ... of the series; as many as the spans
  // hold. For micro-batches of unequal number.
  void FillSequences(int64_t first, absl::Span<int32_t> tokens,
                     absl::Span<int32_t> targets) const;

 private:
  Sampler(const Dataset* dataset, const Options& options);

  const Dataset* dataset_;
  Options options_;
  int64_t epoch_windows_;
};

}  // namespace causeway

#endif  // WORKER_DATA_SAMPLER_H_
