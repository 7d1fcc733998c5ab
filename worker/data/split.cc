// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/split.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr int64_t kMaxWindowsPerBlock = 16;
constexpr int64_t kPreferredBlocksPerShard = 8;

int64_t ValidationBlocks(int64_t blocks, double fraction) {
  if (fraction == 0) return 0;
  return std::max<int64_t>(
      1, std::llround(static_cast<double>(blocks) * fraction));
}

int64_t TrainingBlocks(int64_t blocks, double fraction) {
  return blocks - ValidationBlocks(blocks, fraction);
}

// Returns the fewest blocks that leave one training block per shard.
int64_t MinBlocks(double fraction, int64_t shards) {
  int64_t blocks = shards;
  while (TrainingBlocks(blocks, fraction) < shards) {
    // Each further block adds about 1 - fraction training blocks, so adding the
    // deficit cannot overshoot.
    blocks += shards - TrainingBlocks(blocks, fraction);
  }
  return blocks;
}

bool HasPreferredBlocks(int64_t blocks, double fraction, int64_t shards) {
  return static_cast<double>(blocks) * fraction >= (fraction > 0 ? 1 : 0) &&
         TrainingBlocks(blocks, fraction) >= kPreferredBlocksPerShard * shards;
}

// Marks `chosen` of `blocks` blocks: those b after which floor((b * chosen +
// offset) / blocks) steps up. Returns marked block number `rank`.
int64_t MarkedBlock(int64_t rank, int64_t chosen, int64_t blocks,
                    int64_t offset) {
  // The product exceeds 2^64 for streams of more than about 10^11 tokens.
  const absl::uint128 numerator =
      (absl::uint128(rank) + 1) * absl::uint128(blocks) -
      absl::uint128(offset) + absl::uint128(chosen) - 1;
  return static_cast<int64_t>(numerator / absl::uint128(chosen)) - 1;
}

absl::Status CheckOptions(const Split::Options& options) {
  if (options.sequence_length < 1) {
    return absl::InvalidArgumentError(absl::StrCat("sequence_length is ",
                                                   options.sequence_length,
                                                   "; allowed: 1 or more"));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("validation_fraction is ", options.validation_fraction,
                     "; allowed: at least 0 and less than 1"));
  }
  if (options.shards < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards is ", options.shards, "; allowed: 1 or more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Split> Split::Create(const Options& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  const double fraction = options.validation_fraction;
  Split split;
  split.sequence_length_ = options.sequence_length;
  split.shards_ = options.shards;
  split.windows_per_block_ = kMaxWindowsPerBlock;
  const auto blocks = [&] { return options.tokens / split.block_tokens(); };
  while (split.windows_per_block_ > 1 &&
         !HasPreferredBlocks(blocks(), fraction, options.shards)) {
    --split.windows_per_block_;
  }
  split.validation_blocks_ = ValidationBlocks(blocks(), fraction);
  split.training_blocks_ = blocks() - split.validation_blocks_;
  if (split.training_blocks_ < options.shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "too few tokens: ", options.tokens, ", but ", options.shards,
        options.shards == 1 ? " shard" : " shards",
        " and a validation_fraction of ", fraction, " with sequence_length ",
        options.sequence_length, " take at least ",
        MinBlocks(fraction, options.shards) * (options.sequence_length + 1),
        "; give more data, or set data.shards, data.validation_fraction or "
        "model.sequence_length lower"));
  }
  return split;
}

int64_t Split::training_windows(int64_t shard) const {
  CHECK_GE(shard, 0);
  CHECK_LT(shard, shards_);
  const int64_t shard_blocks =
      (training_blocks_ - shard + shards_ - 1) / shards_;
  return shard_blocks * windows_per_block_;
}

int64_t Split::TrainingWindow(int64_t shard, int64_t index) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, training_windows(shard));
  const int64_t rank = index / windows_per_block_ * shards_ + shard;
  // The complement of an evenly spread set steps up by the same rule:
  // b - floor((bV + h) / B) = floor((b(B - V) + B - 1 - h) / B).
  const int64_t block = MarkedBlock(rank, training_blocks_, blocks(),
                                    blocks() - 1 - blocks() / 2);
  return block * block_tokens() + index % windows_per_block_ * sequence_length_;
}

int64_t Split::ValidationWindow(int64_t index) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, validation_windows());
  const int64_t block = MarkedBlock(index / windows_per_block_,
                                    validation_blocks_, blocks(), blocks() / 2);
  return block * block_tokens() + index % windows_per_block_ * sequence_length_;
}

}  // namespace causeway
