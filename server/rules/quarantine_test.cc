// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/quarantine.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using State = v1::QuarantinedContribution;

constexpr uint64_t kSteps = 10;
const IncarnationKey kB{"b", 1};

v1::ContributionHeader Contribution(const IncarnationKey& island,
                                    uint64_t base_version,
                                    uint32_t fragment = 0) {
  v1::ContributionHeader header;
  header.mutable_identity()->set_island_id(island.island_id);
  header.mutable_identity()->set_incarnation(island.incarnation);
  header.set_fragment(fragment);
  header.set_base_version(base_version);
  header.set_tokens(1000);
  header.set_inner_steps(kSteps);
  header.mutable_object()->set_digest(
      absl::StrCat(island.island_id, "/", base_version));
  return header;
}

class QuarantineTest : public testing::Test {
 protected:
  // Anything passes until a fragment has its usual norm.
  Quarantine Make(const CoordinatorHistory& history = {}) {
    v1::MembershipConfig membership;
    membership.set_outlier_factor(10);
    membership.set_max_islands(40);
    return Quarantine(membership, {1e9, 1e9}, history, &ledger_);
  }
  void Hold(const IncarnationKey& island, uint64_t base_version = 0,
            bool admissible = true) {
    quarantine_.Hold(Contribution(island, base_version), 100, "too long",
                     admissible, now_, effects_);
  }
  // Merges a round with one contribution for each norm.
  void MergeRound(uint32_t fragment, std::vector<double> norms) {
    ClosedRound closed{.fragment = fragment};
    closed.contributions.resize(norms.size(), Contribution({"a", 1}, 0));
    closed.participation.set_live(norms.size());
    closed.norms = std::move(norms);
    quarantine_.RoundMerged(closed);
  }
  std::string Objection(double norm, uint32_t fragment = 0,
                        const RankParts& parts = {}) {
    return quarantine_.Objection(Contribution(kB, 0, fragment), norm, parts, 0);
  }
  State::State StateOf(uint64_t id) {
    return quarantine_.entries().at(id).state;
  }
  uint64_t Refused(const IncarnationKey& key) {
    return ledger_.Account(key, 0, true, {}).refused();
  }
  uint64_t Quarantined(const IncarnationKey& key) {
    return ledger_.Account(key, 0, true, {}).quarantined();
  }

  TokenLedger ledger_{2};
  Quarantine quarantine_ = Make();
  Effects effects_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(QuarantineTest, TheUsualNormIsThatOfAFragmentOverSeveralRounds) {
  MergeRound(0, {1, 1});
  EXPECT_THAT(Objection(100), IsEmpty()) << "half of what defines it is there";
  MergeRound(1, {1, 1});
  EXPECT_THAT(Objection(100, /*fragment=*/1), IsEmpty());
  MergeRound(0, {100, 1});
  EXPECT_THAT(Objection(10.5), HasSubstr("median of the last 4 merged, 1"));
  EXPECT_THAT(Objection(9.5), IsEmpty());
}

TEST_F(QuarantineTest, RanksPartsAreComparedWithThoseOfTheSameFragment) {
  MergeRound(0, {1, 1, 1, 1});
  MergeRound(1, {1, 1, 1, 1});
  quarantine_.Passed(0, {.ranks = 2, .runs = {{0, 0, 1, .5}, {1, 1, 1, .5}}});
  const RankParts wrong = {.ranks = 2, .runs = {{0, 0, 1, .5}, {1, 1, 1, 400}}};
  EXPECT_THAT(Objection(20, 0, wrong), HasSubstr("values of rank 1 (of 2)"));
  EXPECT_THAT(Objection(20, 1, wrong), HasSubstr("not clear which rank's"));
}

TEST_F(QuarantineTest, ANormUsualForMostIslandsIsNoOutlier) {
  // In order of name, the last 16 are a minority.
  std::vector<double> norms(24, 30.);
  norms.resize(40, 1.);
  MergeRound(0, norms);
  EXPECT_THAT(Objection(301), HasSubstr("median of the last 40 merged, 30"));
  EXPECT_THAT(Objection(299), IsEmpty());
}

// The island was merged into version 2. At version 4 its window may have three
// rounds, even after a restart of the coordinator.
TEST_F(QuarantineTest, AnIslandThatMissedRoundsMayHaveALongWindow) {
  CoordinatorHistory history;
  history.merged_norms = {
      std::vector<NormGuard::MergedRound>(4, {{.norm = 1, .inner_steps = 10}})};
  history.settled = {{.key = kB, .tokens = 2000, .base_version = 1}};
  Quarantine restarted = Make(history);
  for (int round = 0; round < 4; ++round) MergeRound(0, {1});
  EXPECT_FALSE(quarantine_.Merged(Contribution(kB, 1), effects_));
  v1::ContributionHeader header = Contribution(kB, 4);
  header.set_inner_steps(10 * kSteps);
  for (Quarantine* each : {&quarantine_, &restarted}) {
    EXPECT_THAT(each->Objection(header, 30.5, {}, /*first_version=*/0),
                HasSubstr("a window of 3.0 times the length"));
    // An island that was never merged counts from its first expected version.
    header.mutable_identity()->set_island_id("c");
    EXPECT_THAT(each->Objection(header, 20.5, {}, /*first_version=*/3),
                HasSubstr("a window of 2.0 times the length"));
    header.mutable_identity()->set_island_id("b");
  }
}

TEST_F(QuarantineTest, DroppedOnesAreRefused) {
  Hold(kB, 0, /*admissible=*/false);
  EXPECT_EQ(Quarantined(kB), 1000);
  EXPECT_THAT(quarantine_.IsAdmitted(1),
              IsFailedPrecondition("cannot be merged: too long"));
  effects_ = {};
  ASSERT_OK(quarantine_.Drop(1, effects_));
  ASSERT_OK(quarantine_.Drop(1, effects_));
  EXPECT_EQ(effects_.events.size(), 1) << "asked for twice";
  EXPECT_EQ(Refused(kB), 1000);
  EXPECT_EQ(Quarantined(kB), 0);
  EXPECT_THAT(quarantine_.IsAdmitted(1), IsFailedPrecondition("was dropped"));
  EXPECT_THAT(quarantine_.Drop(2, effects_), IsNotFound());
  EXPECT_THAT(quarantine_.IsAdmitted(2), IsNotFound());
}

TEST_F(QuarantineTest, AnAdmittedOneGoesIntoTheRoundAndIsMerged) {
  Hold(kB);
  EXPECT_THAT(quarantine_.IsAdmitted(1), IsOkAndHolds(false));
  const std::string digest = Contribution(kB, 0).object().digest();
  EXPECT_FALSE(quarantine_.WasAdmitted(kB, digest)) << "only held";
  Round round({}, 0, /*base_version=*/5);
  quarantine_.Admit(1, round, now_, effects_);
  ASSERT_EQ(round.contributions().size(), 1);
  const auto& [key, header] = *round.contributions().begin();
  EXPECT_EQ(key.base_version, 5);
  EXPECT_EQ(round.NormOf(key), 100);
  EXPECT_THAT(quarantine_.FindInRound(key), Optional(1));
  EXPECT_THAT(quarantine_.IsAdmitted(1), IsOkAndHolds(true));
  EXPECT_THAT(quarantine_.Drop(1, effects_), IsFailedPrecondition());
  EXPECT_TRUE(quarantine_.WasAdmitted(kB, digest));
  EXPECT_FALSE(quarantine_.WasAdmitted({"b", 2}, digest));
  EXPECT_FALSE(quarantine_.WasAdmitted({"a", 1}, digest));
  EXPECT_FALSE(quarantine_.WasAdmitted(kB, "another"));
  EXPECT_EQ(Quarantined(kB), 1000) << "not merged yet";

  EXPECT_TRUE(quarantine_.Merged(header, effects_));
  EXPECT_EQ(StateOf(1), State::ADMITTED);
  EXPECT_EQ(effects_.quarantine.back().state, State::ADMITTED);
  EXPECT_EQ(quarantine_.FindInRound(key), std::nullopt);
  EXPECT_EQ(Quarantined(kB), 0);
}

TEST_F(QuarantineTest, AnAdmittedOneThatCannotBeMergedIsHeldForGood) {
  Hold(kB);
  Round round({}, 0, 5);
  quarantine_.Admit(1, round, now_, effects_);
  const ContributionKey key = round.contributions().begin()->first;
  EXPECT_FALSE(quarantine_.TakeBack({.island_id = "a"}, "", effects_));
  EXPECT_TRUE(quarantine_.TakeBack(key, "not finite", effects_));
  EXPECT_EQ(StateOf(1), State::HELD);
  EXPECT_EQ(effects_.quarantine.back().reason, "not finite");
  EXPECT_THAT(quarantine_.IsAdmitted(1),
              IsFailedPrecondition("cannot be merged: not finite"));
  EXPECT_EQ(quarantine_.FindInRound(key), std::nullopt);
}

TEST_F(QuarantineTest, TheOldestThatIsNotInARoundMakesRoom) {
  EXPECT_EQ(quarantine_.held_since(), absl::InfiniteFuture());
  for (uint64_t id = 1; id <= Quarantine::kMostHeld; ++id) {
    Hold({"b", id});
    now_ += absl::Seconds(1);
  }
  EXPECT_EQ(quarantine_.held_since(), absl::UnixEpoch());
  Round round({}, 0, 0);
  quarantine_.Admit(1, round, now_, effects_);
  effects_ = {};
  Hold({"c", 1});
  EXPECT_EQ(StateOf(1), State::HELD);
  EXPECT_EQ(StateOf(2), State::DROPPED);
  EXPECT_EQ(StateOf(3), State::HELD);
  EXPECT_EQ(Refused({"b", 2}), 1000);
  EXPECT_EQ(effects_.events.back().kind, "contribution_dropped");
  // The entry in the round is decided.
  EXPECT_EQ(quarantine_.held_count(), Quarantine::kMostHeld - 1);
}

TEST_F(QuarantineTest, NumbersAreNotUsedAgainAfterARestart) {
  CoordinatorHistory history;
  history.quarantine = {{.id = 3, .header = Contribution(kB, 0)}};
  Quarantine restarted = Make(history);
  restarted.Hold(Contribution(kB, 0), 100, "", true, now_, effects_);
  EXPECT_EQ(restarted.entries().rbegin()->first, 4);
}

}  // namespace
}  // namespace causeway
