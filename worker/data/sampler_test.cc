// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/test_dataset.h"
#include "worker/data/validation_set.h"

namespace causeway {
namespace {

using ::testing::HasSubstr;

Sampler MakeSampler(const Dataset& dataset, const Sampler::Options& options) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(&dataset, options);
  EXPECT_OK(sampler.status());
  return *std::move(sampler);
}

// The tokens of the first `steps` batches of rank 0.
std::vector<int32_t> FirstTokens(const Sampler& sampler, int batch_size,
                                 int steps) {
  std::vector<int32_t> tokens(batch_size * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  std::vector<int32_t> all;
  for (int step = 0; step < steps; ++step) {
    sampler.FillBatch(step, 0, absl::MakeSpan(tokens), absl::MakeSpan(targets));
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(targets[i], tokens[i] + 1);
    }
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

TEST(SamplerTest, EpochVisitsEveryWindowOnceAndEpochsDiffer) {
  const Dataset dataset = PositionsDataset(3);
  const Sampler sampler =
      MakeSampler(dataset, {.seed = 5, .shard = 1, .batch_size = 4});
  const int64_t windows = sampler.epoch_windows();
  std::set<int64_t> expected;
  for (int64_t i = 0; i < windows; ++i) {
    expected.insert(dataset.split.TrainingWindow(1, i));
  }
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t i = 0; i < windows; ++i) {
      epochs[epoch].push_back(sampler.SequenceBegin(epoch * windows + i));
    }
    EXPECT_EQ(std::set<int64_t>(epochs[epoch].begin(), epochs[epoch].end()),
              expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
}

// Two epochs of every shard, read as batches: no token is shared between
// shards or with the validation windows, as input or as target.
TEST(SamplerTest, BatchesNeverCrossIntoOtherShardsOrValidation) {
  const Dataset dataset = PositionsDataset(2);
  std::vector<std::set<int32_t>> seen(3);
  for (int shard = 0; shard < 2; ++shard) {
    const Sampler sampler =
        MakeSampler(dataset, {.seed = 9, .shard = shard, .batch_size = 3});
    const int steps = static_cast<int>(2 * sampler.epoch_windows() / 3);
    for (const int32_t token : FirstTokens(sampler, 3, steps)) {
      seen[shard].insert(token);
      seen[shard].insert(token + 1);
    }
  }
  const ValidationSet validation(&dataset, 0);
  std::vector<int32_t> tokens(validation.size() * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  validation.Fill(0, absl::MakeSpan(tokens), absl::MakeSpan(targets));
  seen[2].insert(tokens.begin(), tokens.end());
  seen[2].insert(targets.begin(), targets.end());
  std::set<int32_t> all;
  size_t total = 0;
  for (const std::set<int32_t>& part : seen) {
    all.insert(part.begin(), part.end());
    total += part.size();
  }
  EXPECT_EQ(all.size(), total);
  // Nothing but the incomplete last block is left out.
  EXPECT_EQ(total, dataset.split.blocks() * dataset.split.block_tokens());
}

TEST(SamplerTest, BatchDoesNotDependOnTheAgeOfTheProcess) {
  const Dataset dataset = PositionsDataset(1);
  const Sampler::Options options = {.seed = 3, .batch_size = 2};
  const Sampler old = MakeSampler(dataset, options);
  const std::vector<int32_t> history = FirstTokens(old, 2, 500);
  const Sampler young = MakeSampler(dataset, options);
  std::vector<int32_t> tokens(2 * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  young.FillBatch(499, 0, absl::MakeSpan(tokens), absl::MakeSpan(targets));
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(),
                         history.end() - 2 * kTestSequenceLength));
}

TEST(SamplerTest, RanksShareOneBatch) {
  const Dataset dataset = PositionsDataset(1);
  const Sampler one = MakeSampler(dataset, {.seed = 3, .batch_size = 6});
  const Sampler three =
      MakeSampler(dataset, {.seed = 3, .batch_size = 6, .ranks = 3});
  std::vector<int32_t> whole(6 * kTestSequenceLength);
  std::vector<int32_t> whole_targets(whole.size());
  one.FillBatch(17, 0, absl::MakeSpan(whole), absl::MakeSpan(whole_targets));
  std::vector<int32_t> joined(whole.size());
  std::vector<int32_t> joined_targets(whole.size());
  for (int rank = 0; rank < 3; ++rank) {
    three.FillBatch(
        17, rank,
        absl::MakeSpan(joined).subspan(rank * 2 * kTestSequenceLength,
                                       2 * kTestSequenceLength),
        absl::MakeSpan(joined_targets)
            .subspan(rank * 2 * kTestSequenceLength, 2 * kTestSequenceLength));
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(joined_targets, whole_targets);
}

TEST(SamplerTest, SeedChangesTheOrder) {
  const Dataset dataset = PositionsDataset(1);
  const Sampler a = MakeSampler(dataset, {.seed = 1, .batch_size = 4});
  const Sampler b = MakeSampler(dataset, {.seed = 2, .batch_size = 4});
  EXPECT_NE(FirstTokens(a, 4, 5), FirstTokens(b, 4, 5));
}

// A change here would reorder the data of runs that are under way.
TEST(SamplerTest, OrderIsFrozen) {
  const Dataset dataset = PositionsDataset(2);
  const Sampler sampler =
      MakeSampler(dataset, {.seed = 7, .shard = 1, .batch_size = 1});
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < 5; ++i) begins.push_back(sampler.SequenceBegin(i));
  EXPECT_THAT(begins, testing::ElementsAre(5756, 8376, 5708, 13512, 13746));
}

TEST(SamplerTest, OptionsOutOfRangeAreRefused) {
  const Dataset dataset = PositionsDataset(2);
  EXPECT_THAT(Sampler::Create(&dataset, {.shard = 2, .batch_size = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data shard is 2")));
  EXPECT_THAT(Sampler::Create(&dataset, {.batch_size = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      Sampler::Create(&dataset, {.batch_size = 5, .ranks = 2}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("multiple")));
}

}  // namespace
}  // namespace causeway
