// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/upload_turns.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class UploadTurnsTest : public testing::Test {
 protected:
  // Returns a turn that records itself, and then takes `bytes` bytes.
  UploadTurns::Turn Take(uint64_t offset, uint64_t bytes) {
    return [this, offset, bytes](const absl::Status& turn) {
      log_.push_back(absl::StrCat(offset, turn.ok() ? "" : " broken"));
      if (turn.ok()) turns_.Advance(offset + bytes);
    };
  }
  void Arrive(uint64_t offset, uint64_t bytes) {
    turns_.Await(offset, Take(offset, bytes));
  }

  UploadTurns turns_{100};
  std::vector<std::string> log_;
};

TEST_F(UploadTurnsTest, ChunksAreTakenInOrderHoweverTheyCome) {
  Arrive(130, 10);
  Arrive(110, 20);
  EXPECT_THAT(log_, IsEmpty());
  Arrive(100, 10);
  EXPECT_THAT(log_, ElementsAre("100", "110", "130"));
  Arrive(150, 10);
  EXPECT_EQ(log_.size(), 3u);
  Arrive(140, 10);
  EXPECT_THAT(log_, ElementsAre("100", "110", "130", "140", "150"));
}

// Otherwise a client with many small chunks would overflow the stack.
TEST_F(UploadTurnsTest, TurnsThatAreDueOneAfterTheOtherDoNotNest) {
  constexpr uint64_t kChunks = 500'000;
  for (uint64_t i = 1; i < kChunks; ++i) Arrive(100 + i, 1);
  Arrive(100, 1);
  EXPECT_EQ(log_.size(), kChunks);
}

TEST_F(UploadTurnsTest, AChunkTakenBeforeDoesNotWait) {
  // The taker must notice that a chunk arrived twice.
  Arrive(50, 50);
  EXPECT_THAT(log_, ElementsAre("50"));
}

TEST_F(UploadTurnsTest, ABreakEndsWaitingAndLaterTurns) {
  Arrive(120, 10);
  Arrive(110, 10);
  turns_.Break(absl::DataLossError("a chunk is damaged"));
  EXPECT_THAT(log_, ElementsAre("110 broken", "120 broken"));
  Arrive(100, 10);
  EXPECT_EQ(log_.back(), "100 broken");
  // The first error stays.
  turns_.Break(absl::UnavailableError("gone"));
  absl::Status told;
  turns_.Await(100, [&](const absl::Status& turn) { told = turn; });
  EXPECT_THAT(told, IsDataLoss());
}

TEST(SharedUploadsTest, StreamsJoinAnOpenUploadUpToItsNumber) {
  SharedUploads uploads;
  ContributionKey key;
  key.island_id = "north";
  key.incarnation = 2;
  EXPECT_THAT(uploads.Join(key), IsUnavailable());
  ASSERT_OK_AND_ASSIGN(const auto turns, uploads.Open(key, 0, 3));
  ASSERT_OK_AND_ASSIGN(const auto joined, uploads.Join(key));
  EXPECT_EQ(joined, turns);
  EXPECT_OK(uploads.Join(key));
  // One of them may be a stream of an earlier try, so a later try may succeed.
  EXPECT_THAT(uploads.Join(key), IsUnavailable("all streams"));
  ContributionKey other = key;
  other.incarnation = 3;
  EXPECT_THAT(uploads.Join(other), IsUnavailable());
  uploads.Close(key, turns);
  EXPECT_THAT(uploads.Join(key), IsUnavailable());
  EXPECT_THAT(uploads.Open(key, 0, SharedUploads::kMaxStreams + 1),
              IsInvalidArgument("at most 64"));
}

TEST(SharedUploadsTest, ANewTryEndsTheStreamsOfTheOld) {
  SharedUploads uploads;
  const ContributionKey key;
  ASSERT_OK_AND_ASSIGN(const auto old_try, uploads.Open(key, 0, 2));
  absl::Status told;
  old_try->Await(10, [&](const absl::Status& turn) { told = turn; });
  ASSERT_OK_AND_ASSIGN(const auto new_try, uploads.Open(key, 0, 2));
  EXPECT_THAT(told, IsUnavailable("started over"));
  // The end of the old try does not close the new one.
  uploads.Close(key, old_try);
  ASSERT_OK_AND_ASSIGN(const auto joined, uploads.Join(key));
  EXPECT_EQ(joined, new_try);
}

}  // namespace
}  // namespace causeway
