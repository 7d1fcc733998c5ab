// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/round.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kGrace = absl::Seconds(60);
constexpr double kNorm = 1;
constexpr uint32_t kFragment = 3;
constexpr uint64_t kVersion = 8;

v1::ContributionHeader Contribution(const std::string& island,
                                    uint64_t incarnation,
                                    const std::string& digest = "") {
  v1::ContributionHeader header;
  header.mutable_identity()->set_island_id(island);
  header.mutable_identity()->set_incarnation(incarnation);
  header.set_fragment(kFragment);
  header.set_base_version(kVersion);
  header.mutable_object()->set_digest(digest);
  return header;
}

Round NewRound(uint32_t quorum) {
  return Round({.quorum = quorum, .grace = kGrace}, kFragment, kVersion);
}

TEST(RoundTest, ClosesAtOnceWhenNoIslandIsAwaited) {
  Round round = NewRound(/*quorum=*/2);
  EXPECT_FALSE(round.MayClose(/*awaited=*/0, kStart)) << "nothing to merge";
  round.Add(Contribution("a", 1), kNorm, kStart);
  EXPECT_FALSE(round.MayClose(0, absl::InfiniteFuture())) << "below quorum";
  round.Add(Contribution("b", 1), kNorm, kStart);
  EXPECT_TRUE(round.MayClose(0, kStart));
}

TEST(RoundTest, AQuorumWaitsForTheOthersAsLongAsTheGraceWindow) {
  Round round = NewRound(2);
  round.Add(Contribution("a", 1), kNorm, kStart);
  const absl::Time quorum_at = kStart + absl::Seconds(5);
  round.Add(Contribution("b", 1), kNorm, quorum_at);
  EXPECT_FALSE(round.MayClose(1, quorum_at + kGrace - absl::Nanoseconds(1)));
  EXPECT_TRUE(round.MayClose(1, quorum_at + kGrace));
}

TEST(RoundTest, ContributionsBeyondTheQuorumDoNotRestartTheGraceWindow) {
  Round round = NewRound(1);
  round.Add(Contribution("a", 1), kNorm, kStart);
  round.Add(Contribution("b", 1), kNorm, kStart + kGrace / 2);
  EXPECT_TRUE(round.MayClose(1, kStart + kGrace));
}

TEST(RoundTest, AddingOneTwiceChangesNothing) {
  Round round = NewRound(1);
  round.Add(Contribution("a", 1, "first"), kNorm, kStart);
  round.Add(Contribution("a", 1, "second"), kNorm, kStart + kGrace / 2);
  EXPECT_EQ(round.contributions().size(), 1);
  EXPECT_TRUE(round.HasBytes("a", "first"));
  EXPECT_FALSE(round.HasBytes("a", "second"));
  EXPECT_TRUE(round.MayClose(1, kStart + kGrace)) << "the grace window moved";
}

TEST(RoundTest, SumsInOrderOfIslandAndIncarnationWhateverTheArrival) {
  Round round = NewRound(1);
  for (const auto& [island, incarnation] :
       std::vector<std::pair<std::string, uint64_t>>{
           {"b", 2}, {"c", 1}, {"a", 10}, {"b", 1}, {"a", 9}}) {
    round.Add(Contribution(island, incarnation), kNorm, kStart);
  }
  std::vector<std::pair<std::string, uint64_t>> order;
  for (const auto& [key, header] : round.contributions()) {
    EXPECT_EQ(key, KeyOf(header));
    EXPECT_EQ(key.fragment, kFragment);
    EXPECT_EQ(key.base_version, kVersion);
    order.emplace_back(key.island_id, key.incarnation);
  }
  EXPECT_THAT(order, ElementsAre(Pair("a", 9), Pair("a", 10), Pair("b", 1),
                                 Pair("b", 2), Pair("c", 1)));
}

TEST(RoundTest, KnowsAContributionByIncarnationAndByBytes) {
  Round round = NewRound(1);
  round.Add(Contribution("a", 1, "digest"), kNorm, kStart);
  EXPECT_TRUE(round.Has("a", 1));
  EXPECT_FALSE(round.Has("a", 2));
  EXPECT_FALSE(round.Has("b", 1));
  EXPECT_TRUE(round.HasBytes("a", "digest"));
  EXPECT_FALSE(round.HasBytes("a", "other"));
  // Two islands may have the same bytes; these are two contributions.
  EXPECT_FALSE(round.HasBytes("b", "digest"));
}

TEST(RoundTest, CreditCountsBytesOnceForALaterIncarnation) {
  Round round = NewRound(2);
  round.Add(Contribution("a", 1, "digest"), kNorm, kStart);
  round.Credit("a", 2);
  EXPECT_TRUE(round.Has("a", 2));
  EXPECT_FALSE(round.Has("b", 2));
  EXPECT_EQ(round.contributions().size(), 1);
  EXPECT_FALSE(round.MayClose(0, kStart)) << "credit is no second contribution";
}

TEST(RoundTest, AnEarlierIncarnationsContributionMayStandForALaterOne) {
  Round round = NewRound(2);
  round.Add(Contribution("a", 1, "digest"), 1, kStart);
  EXPECT_TRUE(round.HasIsland("a"));
  EXPECT_FALSE(round.HasIsland("b"));
  EXPECT_FALSE(round.HasOrStandsFor("a", 2));
  round.StandIn("a", 2);
  EXPECT_TRUE(round.HasOrStandsFor("a", 2));
  // The round does not claim to have its own bytes.
  EXPECT_FALSE(round.Has("a", 2));
  EXPECT_EQ(round.contributions().size(), 1);
}

TEST(RoundTest, AFailedMergeIsTriedAgainAfterThePause) {
  Round round = NewRound(1);
  round.Add(Contribution("a", 1), kNorm, kStart);
  ASSERT_TRUE(round.MayClose(0, kStart));
  round.Close();
  EXPECT_TRUE(round.merging());
  EXPECT_FALSE(round.MayClose(0, absl::InfiniteFuture())) << "closed twice";

  const absl::Time retry_at = kStart + absl::Seconds(5);
  round.Reopen(retry_at);
  EXPECT_FALSE(round.merging());
  EXPECT_FALSE(round.MayClose(0, retry_at - absl::Nanoseconds(1)));
  EXPECT_TRUE(round.MayClose(0, retry_at));
  // The earlier contributions are still there, and more may come.
  round.Add(Contribution("b", 1), kNorm, kStart);
  EXPECT_EQ(round.contributions().size(), 2);
}

TEST(RoundTest, ARemovalThatLeavesTheQuorumKeepsTheGraceWindow) {
  Round round = NewRound(2);
  for (const char* island : {"a", "b", "c"}) {
    round.Add(Contribution(island, 1), kNorm, kStart);
  }
  round.Remove(KeyOf(Contribution("b", 1)));
  EXPECT_FALSE(round.MayClose(1, kStart + kGrace - absl::Nanoseconds(1)));
  EXPECT_TRUE(round.MayClose(1, kStart + kGrace));
}

TEST(RoundTest, ARemovalBelowTheQuorumEndsTheGraceWindow) {
  Round round = NewRound(2);
  round.Add(Contribution("a", 1), kNorm, kStart);
  round.Add(Contribution("b", 1), kNorm, kStart);
  round.Remove(KeyOf(Contribution("b", 1)));
  EXPECT_EQ(round.quorum_at(), absl::InfiniteFuture());
  EXPECT_FALSE(round.MayClose(0, absl::InfiniteFuture()));
  // The window begins again with the next quorum.
  const absl::Time quorum_at = kStart + kGrace;
  round.Add(Contribution("c", 1), kNorm, quorum_at);
  EXPECT_FALSE(round.MayClose(1, quorum_at));
  EXPECT_TRUE(round.MayClose(1, quorum_at + kGrace));
}

TEST(RoundTest, TimeThatDoesNotCountMovesItsWindows) {
  Round round = NewRound(2);
  round.Shift(absl::Hours(1), kStart);
  EXPECT_EQ(round.quorum_at(), absl::InfiniteFuture());
  EXPECT_EQ(round.overlap_since(), absl::InfiniteFuture());
  round.NoteOffer("a", kStart);
  round.Add(Contribution("a", 1), kNorm, kStart);
  round.Add(Contribution("b", 1), kNorm, kStart + absl::Seconds(5));
  round.NoteCouldClose(true, kStart + absl::Seconds(10));
  const absl::Time now = kStart + absl::Hours(1) + absl::Seconds(8);
  round.Shift(absl::Hours(1), now);
  EXPECT_EQ(round.first_offer(), kStart) << "the date stays";
  EXPECT_EQ(round.overlap_since(), kStart + absl::Hours(1));
  EXPECT_EQ(round.quorum_at(), kStart + absl::Hours(1) + absl::Seconds(5));
  EXPECT_EQ(round.NoteCouldClose(true, absl::InfiniteFuture()), now)
      << "it came within that time";
}

TEST(RoundDeathTest, AClosedRoundTakesNothing) {
  Round round = NewRound(1);
  round.Add(Contribution("a", 1), kNorm, kStart);
  round.Close();
  EXPECT_DEATH(round.Add(Contribution("b", 1), kNorm, kStart), "closed round");
}

TEST(RoundTest, TheFirstUploadIsOfTheIslandThatCameFirst) {
  Round round({.quorum = 3}, 0, 0);
  const auto header = [](const std::string& island) {
    v1::ContributionHeader header;
    header.mutable_identity()->set_island_id(island);
    header.mutable_identity()->set_incarnation(1);
    return header;
  };
  const absl::Time start = absl::UnixEpoch();
  round.NoteOffer("a", start);
  round.NoteOffer("b", start + absl::Seconds(1));
  round.Add(header("b"), 1, start + absl::Seconds(5));
  round.Add(header("a"), 1, start + absl::Seconds(9));
  EXPECT_EQ(round.first_offer(), start);
  EXPECT_EQ(round.first_upload(), absl::Seconds(5));
}

}  // namespace
}  // namespace causeway
