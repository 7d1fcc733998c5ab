// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/testing/files.h"
#include "worker/data/testing/positions_dataset.h"

namespace causeway {
namespace {

using ::testing::HasSubstr;

Sampler MakeSampler(const Dataset& dataset, uint64_t seed, int64_t shard = 0,
                    int64_t order = 0) {
  absl::StatusOr<Sampler> sampler =
      Sampler::Create(&dataset, seed, shard, order);
  EXPECT_OK(sampler.status());
  return *std::move(sampler);
}

// Returns the tokens of `sequences` sequences from `first` on.
std::vector<int32_t> Tokens(const Sampler& sampler, int64_t first,
                            int64_t sequences) {
  std::vector<int32_t> tokens(sequences * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  sampler.Fill(first, absl::MakeSpan(tokens), absl::MakeSpan(targets));
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(targets[i], tokens[i] + 1);
  }
  return tokens;
}

TEST(SamplerTest, EpochVisitsEveryWindowOnceAndEpochsDiffer) {
  const Dataset dataset = PositionsDataset(3);
  const Sampler sampler = MakeSampler(dataset, 5, 1);
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

TEST(SamplerTest, IslandsThatShareAShardReadItInDifferentOrders) {
  const Dataset dataset = PositionsDataset(2);
  const int64_t windows = dataset.split.training_windows(1);
  std::set<std::vector<int64_t>> orders;
  std::set<std::vector<int64_t>> sorted;
  for (int64_t order = 0; order < 3; ++order) {
    const Sampler sampler = MakeSampler(dataset, 5, 1, order);
    std::vector<int64_t> begins;
    for (int64_t i = 0; i < windows; ++i) {
      begins.push_back(sampler.SequenceBegin(i));
    }
    orders.insert(begins);
    absl::c_sort(begins);
    sorted.insert(begins);
  }
  EXPECT_EQ(orders.size(), 3);
  EXPECT_EQ(sorted.size(), 1);
}

// In two epochs of every shard, no shard shares a token with another shard or
// with the validation windows, as input or as target.
TEST(SamplerTest, SequencesNeverCrossIntoOtherShardsOrValidation) {
  const Dataset dataset = PositionsDataset(2);
  std::vector<std::set<int32_t>> seen(3);
  for (int shard = 0; shard < 2; ++shard) {
    const Sampler sampler = MakeSampler(dataset, 9, shard);
    for (const int32_t token :
         Tokens(sampler, 0, 2 * sampler.epoch_windows())) {
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
  // Only the incomplete last block is left out.
  EXPECT_EQ(total, dataset.split.blocks() * dataset.split.block_tokens());
}

TEST(SamplerTest, TheSeriesDoesNotDependOnWhereItIsEntered) {
  const Dataset dataset = PositionsDataset(1);
  const std::vector<int32_t> all = Tokens(MakeSampler(dataset, 3), 0, 1000);
  EXPECT_TRUE(absl::c_equal(
      Tokens(MakeSampler(dataset, 3), 998, 2),
      absl::MakeConstSpan(all).subspan(998 * kTestSequenceLength)));
}

TEST(SamplerTest, SeedChangesTheOrder) {
  const Dataset dataset = PositionsDataset(1);
  EXPECT_NE(Tokens(MakeSampler(dataset, 1), 0, 20),
            Tokens(MakeSampler(dataset, 2), 0, 20));
}

// A change here would reorder the data of existing runs.
TEST(SamplerTest, OrderIsFrozen) {
  const Dataset dataset = PositionsDataset(2);
  const Sampler sampler = MakeSampler(dataset, 7, 1);
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < 5; ++i) begins.push_back(sampler.SequenceBegin(i));
  EXPECT_THAT(begins, testing::ElementsAre(5756, 8376, 5708, 13512, 13746));
}

TEST(SamplerTest, AMissingShardIsRefused) {
  const Dataset dataset = PositionsDataset(2);
  EXPECT_THAT(Sampler::Create(&dataset, 0, 2, 0),
              IsInvalidArgument("data shard is 2"));
}

// Opens files of different byte values.
absl::StatusOr<Dataset> FilesOfBytes(const std::vector<int64_t>& sizes,
                                     std::vector<double> weights) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const char letter = static_cast<char>('a' + i);
    paths.push_back(
        WriteTestFile(std::string(1, letter),
                      std::string(static_cast<size_t>(sizes[i]), letter)));
  }
  v1::RunConfig config;
  config.mutable_model()->set_vocab_size(258);
  config.mutable_model()->set_sequence_length(kTestSequenceLength);
  config.mutable_data()->set_shards(2);
  return OpenDataset(config, paths, std::move(weights));
}

TEST(SamplerTest, WeightsDecideHowOftenAFileIsRead) {
  ASSERT_OK_AND_ASSIGN(const Dataset dataset,
                       FilesOfBytes({40000, 4000, 4000}, {1, 2, 1}));
  const Sampler sampler = MakeSampler(dataset, 5, 1);
  std::vector<std::vector<int64_t>> read(3);
  constexpr int64_t kSequences = 4000;
  for (int64_t number = 0; number < kSequences; ++number) {
    const int64_t begin = sampler.SequenceBegin(number);
    int32_t first = 0;
    dataset.corpus.Copy(begin, absl::MakeSpan(&first, 1));
    // The separator before a file belongs to the one before it.
    read[std::min(first - 'a', 2)].push_back(begin);
  }
  EXPECT_EQ(read[0].size(), kSequences / 4);
  EXPECT_EQ(read[1].size(), kSequences / 2);
  EXPECT_EQ(read[2].size(), kSequences / 4);
  // The whole file is read before any of it is read again.
  const std::set<int64_t> windows(read[1].begin(), read[1].end());
  EXPECT_GT(windows.size(), 200);
  const std::set<int64_t> epoch(
      read[1].begin(),
      read[1].begin() + static_cast<std::ptrdiff_t>(windows.size()));
  EXPECT_EQ(epoch, windows);
}

TEST(SamplerTest, AWeightNeedsAFileWithSequences) {
  EXPECT_THAT(FilesOfBytes({4000, 4000}, {1}),
              IsInvalidArgument("1 weights for 2 data files"));
  ASSERT_OK_AND_ASSIGN(const Dataset small, FilesOfBytes({4000, 3}, {1, 1}));
  EXPECT_THAT(Sampler::Create(&small, 1, 0, 0).status(),
              IsInvalidArgument("no training sequence"));
}

TEST(ValidationSetTest, LimitSpreadsOverAllWindowsWithoutRepeats) {
  const Dataset dataset = PositionsDataset(1);
  const ValidationSet whole(&dataset, 0);
  ASSERT_EQ(whole.size(), dataset.split.validation_windows());
  const ValidationSet limited(&dataset, 10);
  ASSERT_EQ(limited.size(), 10);
  std::set<int64_t> begins;
  for (int64_t i = 0; i < 10; ++i) begins.insert(limited.WindowBegin(i));
  EXPECT_EQ(begins.size(), 10u);
  EXPECT_EQ(*begins.begin(), whole.WindowBegin(0));
  EXPECT_GT(*begins.rbegin(), kTestTokens * 8 / 10);
  EXPECT_EQ(ValidationSet(&dataset, 1 << 20).size(), whole.size());
}

TEST(ValidationSetTest, RowsAreTheWindowsInOrder) {
  const Dataset dataset = PositionsDataset(1);
  const ValidationSet validation(&dataset, 0);
  std::vector<int32_t> tokens(2 * kTestSequenceLength);
  std::vector<int32_t> targets(tokens.size());
  validation.Fill(3, absl::MakeSpan(tokens), absl::MakeSpan(targets));
  for (int i = 0; i < kTestSequenceLength; ++i) {
    EXPECT_EQ(tokens[i], validation.WindowBegin(3) + i);
    EXPECT_EQ(tokens[kTestSequenceLength + i], validation.WindowBegin(4) + i);
    EXPECT_EQ(targets[kTestSequenceLength + i],
              tokens[kTestSequenceLength + i] + 1);
  }
}

}  // namespace
}  // namespace causeway
