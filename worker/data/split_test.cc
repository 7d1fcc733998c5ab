// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/split.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kUnused = -1;
constexpr int kValidation = -2;

// Returns the reader of each token, as input or target: a shard, kValidation or
// kUnused. Fails if a token has two readers or is a target twice.
std::vector<int> Readers(const Split& split, int64_t tokens) {
  std::vector<int> readers(tokens, kUnused);
  std::vector<bool> is_target(tokens);
  const auto mark = [&](int64_t begin, int reader) {
    for (int64_t i = begin; i <= begin + split.sequence_length(); ++i) {
      ASSERT_GE(i, 0);
      ASSERT_LT(i, tokens);
      ASSERT_TRUE(readers[i] == kUnused || readers[i] == reader)
          << "token " << i << " of " << reader << " and " << readers[i];
      readers[i] = reader;
      if (i == begin) continue;
      ASSERT_FALSE(is_target[i]) << i;
      is_target[i] = true;
    }
  };
  for (int64_t shard = 0; shard < split.shards(); ++shard) {
    for (int64_t i = 0; i < split.training_windows(shard); ++i) {
      mark(split.TrainingWindow(shard, i), static_cast<int>(shard));
    }
  }
  for (int64_t i = 0; i < split.validation_windows(); ++i) {
    mark(split.ValidationWindow(i), kValidation);
  }
  return readers;
}

TEST(SplitTest, EveryWindowStaysInItsPartAndNothingIsReadTwice) {
  for (const int64_t tokens : {60, 333, 1000, 5000, 20011}) {
    for (const int64_t length : {1, 4, 7, 32}) {
      for (const double fraction : {0.0, 0.01, 0.05, 0.3, 0.9}) {
        for (const int64_t shards : {1, 2, 3, 8}) {
          const absl::StatusOr<Split> split =
              Split::Create({tokens, length, fraction, shards});
          if (!split.ok()) continue;
          SCOPED_TRACE(testing::Message()
                       << tokens << " tokens, length " << length
                       << ", fraction " << fraction << ", shards " << shards);
          const std::vector<int> readers = Readers(*split, tokens);
          if (HasFatalFailure()) return;
          // Only the tokens at the end that fill no block are unused.
          int64_t used = 0;
          for (const int reader : readers) used += reader != kUnused;
          EXPECT_EQ(used, split->blocks() * split->block_tokens());
          EXPECT_LT(tokens - used, split->block_tokens());
        }
      }
    }
  }
}

TEST(SplitTest, ValidationBlocksHaveTheirShareAndAreEvenlySpread) {
  ASSERT_OK_AND_ASSIGN(const Split split,
                       Split::Create({.tokens = 1'000'000,
                                      .sequence_length = 64,
                                      .validation_fraction = 0.05,
                                      .shards = 2}));
  EXPECT_EQ(split.windows_per_block(), 16);
  EXPECT_EQ(split.blocks(), 1'000'000 / 1025);
  EXPECT_EQ(split.validation_windows(),
            16 * std::lround(split.blocks() * 0.05));
  const int64_t stride = 20 * split.block_tokens();
  int64_t previous = -stride / 2;
  for (int64_t i = 0; i < split.validation_windows(); i += 16) {
    const int64_t begin = split.ValidationWindow(i);
    EXPECT_NEAR(static_cast<double>(begin - previous),
                static_cast<double>(stride), 1.5 * split.block_tokens());
    previous = begin;
  }
}

TEST(SplitTest, ShardsAreOfEqualSizeToOneBlock) {
  ASSERT_OK_AND_ASSIGN(const Split split,
                       Split::Create({.tokens = 500'000,
                                      .sequence_length = 64,
                                      .validation_fraction = 0.05,
                                      .shards = 7}));
  for (int64_t shard = 0; shard < 7; ++shard) {
    EXPECT_LE(
        std::abs(split.training_windows(shard) - split.training_windows(0)),
        split.windows_per_block());
  }
}

// Computed by hand: 10 blocks of one window of 2 tokens, one in five held out.
// 5 windows per block would not leave 8 blocks to the shard.
TEST(SplitTest, MatchesAnExampleByHand) {
  ASSERT_OK_AND_ASSIGN(const Split split, Split::Create({20, 1, 0.2, 1}));
  EXPECT_EQ(split.windows_per_block(), 1);
  EXPECT_EQ(split.validation_windows(), 2);
  // floor((2 (b + 1) + 5) / 10) rises at b = 2 and b = 7.
  EXPECT_EQ(split.ValidationWindow(0), 2 * 2);
  EXPECT_EQ(split.ValidationWindow(1), 7 * 2);
  EXPECT_EQ(split.TrainingWindow(0, 1), 1 * 2);
  EXPECT_EQ(split.TrainingWindow(0, 2), 3 * 2);
  EXPECT_EQ(split.TrainingWindow(0, 7), 9 * 2);
}

TEST(SplitTest, FractionZeroHoldsNothingOut) {
  ASSERT_OK_AND_ASSIGN(const Split split, Split::Create({1000, 10, 0, 1}));
  EXPECT_EQ(split.validation_windows(), 0);
  EXPECT_EQ(split.training_windows(0),
            split.blocks() * split.windows_per_block());
}

TEST(SplitTest, SmallStreamsGetShorterBlocks) {
  ASSERT_OK_AND_ASSIGN(const Split large, Split::Create({17 * 40, 1, 0.05, 1}));
  ASSERT_OK_AND_ASSIGN(const Split small, Split::Create({17 * 10, 1, 0.05, 1}));
  EXPECT_EQ(large.windows_per_block(), 16);
  EXPECT_EQ(small.windows_per_block(), 7);
}

// The minimum in the message works; one token less does not.
TEST(SplitTest, TooFewTokensNamesTheExactMinimum) {
  for (const double fraction : {0.0, 0.05, 0.5, 0.9}) {
    for (const int64_t shards : {1, 2, 5, 64}) {
      const absl::Status status =
          Split::Create({1, 100, fraction, shards}).status();
      ASSERT_THAT(status, IsInvalidArgument("take at least ", "data.shards"));
      const std::string message(status.message());
      const int64_t minimum =
          std::stoll(message.substr(message.find("at least ") + 9));
      EXPECT_OK(Split::Create({minimum, 100, fraction, shards}));
      EXPECT_THAT(Split::Create({minimum - 1, 100, fraction, shards}),
                  IsInvalidArgument())
          << fraction << " " << shards << " " << minimum;
    }
  }
}

TEST(SplitTest, LastWindowsOfAVeryLongStreamAreInRange) {
  const int64_t tokens = int64_t{1} << 50;
  ASSERT_OK_AND_ASSIGN(const Split split, Split::Create({tokens, 2, 0.05, 3}));
  EXPECT_LE(split.ValidationWindow(split.validation_windows() - 1) + 2, tokens);
  EXPECT_GT(split.TrainingWindow(2, split.training_windows(2) - 1),
            tokens - 4 * split.block_tokens());
}

TEST(SplitTest, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Split::Create({1000, 0, 0.1, 1}),
              IsInvalidArgument("sequence_length is 0"));
  for (const double fraction : {-0.1, 1.0, nan}) {
    EXPECT_THAT(Split::Create({1000, 10, fraction, 1}),
                IsInvalidArgument("validation_fraction is "));
  }
  EXPECT_THAT(Split::Create({1000, 10, 0.1, 0}),
              IsInvalidArgument("shards is 0"));
}

}  // namespace
}  // namespace causeway
