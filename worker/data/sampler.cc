// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sampler.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/data/permutation.h"

namespace causeway {
namespace {

// Folds one number into a key; the order of the numbers matters.
uint64_t ExtendKey(uint64_t key, int64_t number) {
  return MixBits(key + 0x9e3779b97f4a7c15) ^ static_cast<uint64_t>(number);
}

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(const Dataset* dataset,
                                        const Options& options) {
  const int64_t shards = dataset->split.shards();
  if (options.shard < 0 || options.shard >= shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data shard is ", options.shard, "; allowed with data.shards ", shards,
        ": 0 to ", shards - 1));
  }
  if (options.ranks < 1 || options.batch_size < 1 ||
      options.batch_size % options.ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", options.batch_size,
                     "; allowed: a positive multiple of the number of ranks, ",
                     options.ranks));
  }
  return Sampler(dataset, options);
}

Sampler::Sampler(const Dataset* dataset, const Options& options)
    : dataset_(dataset),
      options_(options),
      epoch_windows_(dataset->split.training_windows(options.shard)) {}

int64_t Sampler::SequenceBegin(int64_t number) const {
  CHECK_GE(number, 0);
  uint64_t key = ExtendKey(options_.seed, options_.shard);
  key = MixBits(ExtendKey(key, number / epoch_windows_));
  const Permutation order(epoch_windows_, key);
  return dataset_->split.TrainingWindow(options_.shard,
                                        order(number % epoch_windows_));
}

void Sampler::FillBatch(int64_t step, int64_t rank, absl::Span<int32_t> tokens,
                        absl::Span<int32_t> targets) const {
  CHECK_GE(step, 0);
  CHECK_GE(rank, 0);
  CHECK_LT(rank, options_.ranks);
  const int64_t rank_batch = options_.batch_size / options_.ranks;
  CHECK_EQ(static_cast<int64_t>(tokens.size()),
           rank_batch * dataset_->split.sequence_length());
  FillSequences(step * options_.batch_size + rank * rank_batch, tokens,
                targets);
}

void Sampler::FillSequences(int64_t first, absl::Span<int32_t> tokens,
                            absl::Span<int32_t> targets) const {
  const size_t length = static_cast<size_t>(dataset_->split.sequence_length());
  CHECK_EQ(tokens.size(), targets.size());
  CHECK_EQ(tokens.size() % length, 0u);
  for (size_t row = 0; row < tokens.size(); row += length) {
    dataset_->CopyWindow(SequenceBegin(first++), tokens.subspan(row, length),
                         targets.subspan(row, length));
  }
}

}  // namespace causeway
