// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Divides a token stream into validation and training, and the training part
// into disjoint shards, by a rule that needs no state: all islands and tools
// with the same Split::Options agree.
//
// Terms. A *window* is one training sequence: sequence_length + 1 consecutive
// tokens, of which the first sequence_length are inputs and the last
// sequence_length are targets. A *block* is a run of windows that overlap by
// one token (the last target of one is the first input of the next):
// windows_per_block * sequence_length + 1 tokens. Blocks do not overlap, and
// each window lies in one block. So no token of a validation block, as input or
// as target, is in a training window, and no token of one shard is in
// another's.
//
// The rule, in integers:
//   blocks B = tokens / block_tokens; the tokens after the last are not used.
//   validation blocks V = round(B * validation_fraction), at least 1 unless
//     the fraction is 0.
//   block b is a validation block if
//     floor(((b + 1) V + floor(B / 2)) / B) > floor((b V + floor(B / 2)) / B),
//     which spreads them evenly over the stream.
//   training block number r (counted over training blocks) belongs to shard
//     r mod shards, so that shards are alike.
//   windows_per_block is the largest of 16, 15, ..., 1 that gives at least
//     1 / validation_fraction blocks and 8 training blocks to a shard; 1 if
//     none does. Long blocks keep validation text away from training text.
#ifndef WORKER_DATA_SPLIT_H_
#define WORKER_DATA_SPLIT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace causeway {

// Immutable, thread-safe, cheap to copy. Methods take constant time.
class Split {
 public:
  struct Options {
    // The number of tokens in the stream.
    int64_t tokens = 0;
    int64_t sequence_length = 0;
    // The share of validation blocks, in [0, 1).
    double validation_fraction = 0;
    // The number of shards; at least 1.
    int64_t shards = 1;
  };

  // Creates a split.
  //   INVALID_ARGUMENT  an option is out of range; or the stream is too short
  //                     for one validation window and one training window per
  //                     shard; the message says how many tokens that takes.
  static absl::StatusOr<Split> Create(const Options& options);

  int64_t shards() const { return shards_; }
  int64_t sequence_length() const { return sequence_length_; }
  int64_t windows_per_block() const { return windows_per_block_; }
  int64_t block_tokens() const {
    return windows_per_block_ * sequence_length_ + 1;
  }
  int64_t blocks() const { return training_blocks_ + validation_blocks_; }

  // Returns the number of windows of `shard` (0 .. shards - 1); at least 1.
  int64_t training_windows(int64_t shard) const;
  // Returns the index in the stream of the first token of training window
  // `index` (0 .. training_windows(shard) - 1), in the order of the stream.
  int64_t TrainingWindow(int64_t shard, int64_t index) const;

  // Returns the number of validation windows; 0 only if validation_fraction is.
  int64_t validation_windows() const {
    return validation_blocks_ * windows_per_block_;
  }
  // Returns the index in the stream of the first token of validation window
  // `index`.
  int64_t ValidationWindow(int64_t index) const;

 private:
  Split() = default;

  int64_t sequence_length_ = 0;
  int64_t shards_ = 0;
  int64_t windows_per_block_ = 0;
  int64_t training_blocks_ = 0;
  int64_t validation_blocks_ = 0;
};

}  // namespace causeway

#endif  // WORKER_DATA_SPLIT_H_
