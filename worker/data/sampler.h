// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which training windows an island reads, in which order.
//
// The island's sequences form one endless series, which trainers take in order:
// number n is window n mod W of epoch floor(n / W), where W is the number of
// windows of the island's shard. Each epoch visits every window once, in its
// own order (permutation.h, keyed by seed, shard, order and epoch). Islands
// that share a shard read it in different orders.
//
// If the dataset has weights, each file has its own series, of the shard's
// windows that begin in it, and mixture.h orders the files.
//
// So a sequence is a pure function of (seed, shard, order, number), whatever
// the age of the process and the number of ranks, and an island that comes back
// continues where it was.
//
// Immutable, thread-safe.
#ifndef WORKER_DATA_SAMPLER_H_
#define WORKER_DATA_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/data/mixture.h"

namespace causeway {

class Sampler {
 public:
  // Creates the sampler of the island's shard, one of the split's, in its
  // `order` (JoinResponse.data_order). `dataset` must outlive the sampler.
  //   INVALID_ARGUMENT  the split has no such shard; or the dataset has weights
  //                     that Mixture::Create refuses, or a file in which no
  //                     window of the shard begins.
  static absl::StatusOr<Sampler> Create(const Dataset* dataset, uint64_t seed,
                                        int64_t shard, int64_t order);

  // Returns the number of the shard's windows.
  int64_t epoch_windows() const { return epoch_windows_; }

  // Returns the index in the corpus of the first token of sequence `number`.
  int64_t SequenceBegin(int64_t number) const;

  // Writes sequences first, first + 1, ... of the series, as many as the spans
  // hold: rows of sequence_length tokens, and the token that follows each.
  void Fill(int64_t first, absl::Span<int32_t> tokens,
            absl::Span<int32_t> targets) const;

 private:
  // Windows of the shard with their own series.
  struct Source {
    int64_t first = 0;
    int64_t windows = 0;
    uint64_t key = 0;
  };

  Sampler(const Dataset* dataset, int64_t shard, Mixture mixture);

  // Returns the index of the shard's first window that begins at this token of
  // the corpus or later.
  int64_t FirstWindowFrom(int64_t token) const;

  const Dataset* dataset_;
  int64_t shard_;
  int64_t epoch_windows_;
  Mixture mixture_;
  // One source, or one for each file.
  std::vector<Source> sources_;
};

// The held-out windows, in a fixed order: no two share a target, and none
// shares a token with a training window (split.h).
//
//   const ValidationSet validation(&dataset, /*max_windows=*/256);
//   for (int64_t i = 0; i < validation.size(); i += rows) {
//     validation.Fill(i, tokens, targets);
//   }
//
// Immutable, thread-safe.
class ValidationSet {
 public:
  // Takes at most `max_windows` windows, spread evenly over all of them; 0
  // means no limit. `dataset` must outlive the object.
  ValidationSet(const Dataset* dataset, int64_t max_windows);

  // Returns the number of windows; 0 only if the run holds nothing out.
  int64_t size() const { return size_; }
  int64_t sequence_length() const { return dataset_->split.sequence_length(); }

  // Returns the index in the corpus of the first token of window `index`.
  int64_t WindowBegin(int64_t index) const;

  // Writes windows first, first + 1, ... (as many as the spans hold, all of
  // them below size()): rows of sequence_length tokens, and the token that
  // follows each.
  void Fill(int64_t first, absl::Span<int32_t> tokens,
            absl::Span<int32_t> targets) const;

 private:
  const Dataset* dataset_;
  int64_t size_;
};

}  // namespace causeway

#endif  // WORKER_DATA_SAMPLER_H_
