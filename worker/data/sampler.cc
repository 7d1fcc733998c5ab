// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sampler.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
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
                                        int64_t shard, int64_t order) {
  const int64_t shards = dataset->split.shards();
  if (shard < 0 || shard >= shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("data shard is ", shard, "; allowed with data.shards ",
                     shards, ": 0 to ", shards - 1));
  }
  const std::vector<double>& weights = dataset->weights;
  ASSIGN_OR_RETURN(
      Mixture mixture,
      Mixture::Create(weights.empty() ? std::vector<double>{1} : weights));
  Sampler sampler(dataset, shard, std::move(mixture));
  const uint64_t key = ExtendKey(seed, shard + order * shards);
  if (weights.empty()) {
    sampler.sources_ = {{0, sampler.epoch_windows_, key}};
    return sampler;
  }
  const Corpus& corpus = dataset->corpus;
  for (size_t file = 0; file < corpus.files(); ++file) {
    const int64_t first = sampler.FirstWindowFrom(corpus.file_begin(file));
    const int64_t end =
        file + 1 == corpus.files()
            ? sampler.epoch_windows_
            : sampler.FirstWindowFrom(corpus.file_begin(file + 1));
    if (first == end) {
      return absl::InvalidArgumentError(absl::StrCat(
          corpus.file_path(file), ": no training sequence of data shard ",
          shard,
          " begins in this file, so it cannot have a weight; give a "
          "larger file, or fewer data.shards"));
    }
    sampler.sources_.push_back(
        {first, end - first, ExtendKey(key, static_cast<int64_t>(file))});
  }
  return sampler;
}

Sampler::Sampler(const Dataset* dataset, int64_t shard, Mixture mixture)
    : dataset_(dataset),
      shard_(shard),
      epoch_windows_(dataset->split.training_windows(shard)),
      mixture_(std::move(mixture)) {}

int64_t Sampler::FirstWindowFrom(int64_t token) const {
  int64_t low = 0;
  for (int64_t high = epoch_windows_; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (dataset_->split.TrainingWindow(shard_, middle) < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int64_t Sampler::SequenceBegin(int64_t number) const {
  const Mixture::Place place = mixture_.At(number);
  const Source& source = sources_[place.source];
  const uint64_t key =
      MixBits(ExtendKey(source.key, place.index / source.windows));
  const Permutation order(source.windows, key);
  return dataset_->split.TrainingWindow(
      shard_, source.first + order(place.index % source.windows));
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
