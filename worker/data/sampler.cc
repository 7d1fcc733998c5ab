// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sampler.h"

#include <algorithm>
#include <cstddef>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/data/permutation.h"

namespace causeway {
namespace {

// Adds a number to a key; the order of the numbers matters.
uint64_t ExtendKey(uint64_t key, int64_t number) {
  return MixBits(key + 0x9e3779b97f4a7c15) ^ static_cast<uint64_t>(number);
}

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(const Dataset* dataset, uint64_t seed,
                                        int64_t shard) {
  const int64_t shards = dataset->split.shards();
  if (shard < 0 || shard >= shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("data shard is ", shard, "; allowed with data.shards ",
                     shards, ": 0 to ", shards - 1));
  }
  return Sampler(dataset, seed, shard);
}

Sampler::Sampler(const Dataset* dataset, uint64_t seed, int64_t shard)
    : dataset_(dataset),
      seed_(seed),
      shard_(shard),
      epoch_windows_(dataset->split.training_windows(shard)) {}

int64_t Sampler::SequenceBegin(int64_t number) const {
  CHECK_GE(number, 0);
  uint64_t key = ExtendKey(seed_, shard_);
  key = MixBits(ExtendKey(key, number / epoch_windows_));
  const Permutation order(epoch_windows_, key);
  return dataset_->split.TrainingWindow(shard_, order(number % epoch_windows_));
}

void Sampler::Fill(int64_t first, absl::Span<int32_t> tokens,
                   absl::Span<int32_t> targets) const {
  dataset_->CopyWindows([&] { return SequenceBegin(first++); }, tokens,
                        targets);
}

ValidationSet::ValidationSet(const Dataset* dataset, int64_t max_windows)
    : dataset_(dataset), size_(dataset->split.validation_windows()) {
  CHECK_GE(max_windows, 0);
  if (max_windows > 0) size_ = std::min(size_, max_windows);
}

int64_t ValidationSet::WindowBegin(int64_t index) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size_);
  const absl::int128 spread =
      absl::int128(index) * dataset_->split.validation_windows() / size_;
  return dataset_->split.ValidationWindow(static_cast<int64_t>(spread));
}

void ValidationSet::Fill(int64_t first, absl::Span<int32_t> tokens,
                         absl::Span<int32_t> targets) const {
  dataset_->CopyWindows([&] { return WindowBegin(first++); }, tokens, targets);
}

}  // namespace causeway
