// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/training_history.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/proto_time.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

v1::IslandProgress Report(uint64_t tokens, double loss, double rate = 10,
                          uint64_t bytes = 0) {
  v1::IslandProgress progress;
  progress.set_tokens(tokens);
  progress.set_loss(loss);
  progress.set_tokens_per_second(rate);
  progress.set_bytes_up(bytes);
  progress.set_bytes_down(2 * bytes);
  return progress;
}

TEST(TrainingHistoryTest, AnIslandsLossIsTheMeanOverItsTokens) {
  TrainingHistory history(std::nullopt);
  history.Heard("a", Report(0, 0), Report(100, 4));
  history.Heard("a", Report(100, 4), Report(400, 2, 30));
  history.Heard("b", Report(0, 0), Report(1000, 7.5));
  const v1::TrainingPoint point = history.Take(3);
  EXPECT_EQ(point.version(), 3);
  ASSERT_EQ(point.islands_size(), 2);
  EXPECT_EQ(point.islands(0).island_id(), "a");
  EXPECT_DOUBLE_EQ(point.islands(0).loss(), 2.5);
  EXPECT_DOUBLE_EQ(point.islands(0).tokens_per_second(), 30);
  EXPECT_DOUBLE_EQ(point.loss(), 5) << "the mean over islands";
}

TEST(TrainingHistoryTest, APointHasTheTrainingSinceTheLast) {
  TrainingHistory history(std::nullopt);
  history.Heard("a", Report(0, 0), Report(100, 4));
  history.Take(1);
  // A repeated report is no training.
  history.Heard("a", Report(100, 4), Report(100, 4));
  EXPECT_EQ(history.Take(2).islands_size(), 0);
  history.Heard("a", Report(100, 4), Report(101, 3));
  EXPECT_DOUBLE_EQ(history.Take(3).loss(), 3);
  EXPECT_EQ(history.version(), 3);
}

TEST(TrainingHistoryTest, BytesContinueFromTheNewestPoint) {
  v1::TrainingPoint newest;
  newest.set_version(7);
  newest.set_bytes_up(1000);
  TrainingHistory history(newest);
  EXPECT_EQ(history.version(), 7);
  history.Heard("a", Report(0, 1, 1, 5), Report(0, 1, 1, 15));
  // A new incarnation counts from 0.
  history.Heard("a", Report(0, 1, 1, 15), Report(0, 1, 1, 3));
  const v1::TrainingPoint point = history.Take(8);
  EXPECT_EQ(point.bytes_up(), 1010);
  EXPECT_EQ(point.bytes_down(), 20);
}

TEST(TrainingHistoryTest, ImpossibleClaimsCountNothing) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TrainingHistory history(std::nullopt);
  for (const double loss : {0.0, -1.0, 1001.0, kInfinity, std::nan("")}) {
    history.Heard("liar", Report(0, 0), Report(100, loss));
  }
  for (const double rate : {-1.0, kInfinity, std::nan("")}) {
    history.Heard("liar", Report(0, 0), Report(100, 4, rate));
  }
  history.Heard("liar", Report(0, 0, 0, 0),
                Report(0, 0, 0, std::numeric_limits<uint64_t>::max() / 2));
  const v1::TrainingPoint point = history.Take(1);
  EXPECT_EQ(point.islands_size(), 0);
  EXPECT_EQ(point.loss(), 0);
  EXPECT_EQ(point.bytes_up(), 0);
}

TEST(TrainingHistoryTest, APointHasABoundedNumberOfIslands) {
  TrainingHistory history(std::nullopt);
  constexpr int kIslands = 4 * TrainingHistory::kMostIslands;
  for (int i = 0; i < kIslands; ++i) {
    history.Heard(absl::StrCat("island-", i), Report(0, 0),
                  Report(1, i < kIslands / 2 ? 1 : 2, 10));
  }
  const v1::TrainingPoint point = history.Take(1);
  EXPECT_EQ(point.islands_size(), TrainingHistory::kMostIslands);
  EXPECT_EQ(point.loss(), 1.5) << "the mean is over all islands";
  EXPECT_LT(point.ByteSizeLong(), 8192u);
}

v1::FragmentHead Head(uint32_t fragment, uint64_t version) {
  v1::FragmentHead head;
  head.set_fragment(fragment);
  head.set_version(version);
  return head;
}

TEST(TrainingHistoryTest, APointHasTheMeanSimilarityOfItsRounds) {
  TrainingHistory history(std::nullopt);
  const auto merged = [&](uint32_t fragment, std::optional<double> similarity) {
    history.Merged(Head(fragment, 1), absl::InfiniteFuture(), absl::UnixEpoch(),
                   similarity);
  };
  merged(0, 0.25);
  merged(1, std::nullopt);
  merged(2, 0.75);
  EXPECT_EQ(history.Take(1).similarity(), 0.5);
  merged(0, -0.5);
  EXPECT_EQ(history.Take(2).similarity(), -0.5);
  merged(0, std::nullopt);
  EXPECT_FALSE(history.Take(3).has_similarity());
}

TEST(TrainingHistoryTest, APointHasTheRoundsThatAreOver) {
  constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);
  const auto at = [&](int seconds) { return kStart + absl::Seconds(seconds); };
  TrainingHistory history(std::nullopt);
  EXPECT_EQ(history.LastRound(1), nullptr);
  history.Merged(Head(1, 1), at(1), at(2), 0.5);
  EXPECT_EQ(ToTime(history.LastRound(1)->sent_at()), at(1));
  EXPECT_FALSE(history.LastRound(1)->has_delivered_at());
  EXPECT_EQ(history.Take(1).rounds_size(), 0) << "not delivered yet";
  history.Delivered(Head(1, 1), at(3));
  history.Delivered(Head(1, 1), at(4));
  history.Merged(Head(1, 2), absl::InfiniteFuture(), at(6), 0.5);
  // The update of an earlier version changes nothing.
  history.Delivered(Head(1, 1), at(7));
  const v1::TrainingPoint point = history.Take(2);
  ASSERT_EQ(point.rounds_size(), 1);
  EXPECT_EQ(point.rounds(0).version(), 1);
  EXPECT_EQ(ToTime(point.rounds(0).merged_at()), at(2));
  EXPECT_EQ(ToTime(point.rounds(0).delivered_at()), at(4));
  EXPECT_EQ(history.LastRound(1)->version(), 2);
  EXPECT_FALSE(history.LastRound(1)->has_sent_at());
  EXPECT_FALSE(history.LastRound(1)->has_delivered_at());
}

TEST(TrainingHistoryTest, APointHasABoundedNumberOfRounds) {
  constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);
  TrainingHistory history(std::nullopt);
  for (uint64_t version = 1; version < 100; ++version) {
    history.Merged(Head(0, version), kStart, kStart, 0.5);
  }
  EXPECT_EQ(history.Take(99).rounds_size(), TrainingHistory::kMostRounds);
  EXPECT_EQ(history.Take(100).rounds_size(), 0);
}

}  // namespace
}  // namespace causeway
