// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/culprit.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/rendezvous.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Optional;
using testing::StartsWith;

// Reports what a rank of five has seen, and returns the resulting status.
absl::Status Find(int rank, int suspect, const absl::Status& seen,
                  Rendezvous* rendezvous, std::vector<int> unreached = {},
                  absl::Duration patience = absl::Seconds(1.5)) {
  return FindCulprit({.rank = rank,
                      .ranks = 5,
                      .suspect = suspect,
                      .status = seen,
                      .unreached = std::move(unreached),
                      .patience = patience},
                     rendezvous, [] {});
}

const absl::Status kWaited = absl::DeadlineExceededError("waited in vain");
const absl::Status kLost = absl::UnavailableError("lost the connection");

TEST(CulpritTest, ASilentRankIsTheCulprit) {
  LocalRendezvous rendezvous;
  EXPECT_THAT(Find(0, 2, kWaited, &rendezvous),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank 2 is stuck: waited in vain"));
  EXPECT_THAT(Find(1, 2, kLost, &rendezvous),
              StatusIs(absl::StatusCode::kUnavailable,
                       "rank 2 is dead: lost the connection"));
}

TEST(CulpritTest, AStatusCarriesTheRankThatItBlames) {
  LocalRendezvous rendezvous;
  const auto stuck = RankTroubleOf(Find(0, 2, kWaited, &rendezvous));
  ASSERT_TRUE(stuck.has_value());
  EXPECT_EQ(stuck->kind(), v1::RankTrouble::STUCK_RANK);
  EXPECT_EQ(stuck->rank(), 2);
  const auto dead = RankTroubleOf(Find(1, 2, kLost, &rendezvous));
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->kind(), v1::RankTrouble::DEAD_RANK);
  EXPECT_EQ(dead->text(), "rank 2 is dead: lost the connection");
  ReportOwnFailure(3, absl::OutOfRangeError("training diverged"), &rendezvous);
  EXPECT_FALSE(RankTroubleOf(Find(4, 3, kLost, &rendezvous)).has_value());
  EXPECT_FALSE(RankTroubleOf(absl::OkStatus()).has_value());
}

TEST(CulpritTest, ARankThatWaitsItselfIsAVictim) {
  LocalRendezvous rendezvous;
  // Rank 0 waits for 1, which waits for 2, which has lost 3.
  std::thread rank2(
      [&] { EXPECT_THAT(Find(2, 3, kLost, &rendezvous), IsUnavailable()); });
  std::thread rank1([&] {
    EXPECT_THAT(Find(1, 2, kWaited, &rendezvous),
                IsUnavailable(StartsWith("rank 3 is dead: ")));
  });
  EXPECT_THAT(Find(0, 1, kWaited, &rendezvous),
              IsUnavailable(StartsWith("rank 3 is dead: ")));
  rank1.join();
  rank2.join();
}

TEST(CulpritTest, ARankThatGaveUpIsNamedWithItsReason) {
  LocalRendezvous rendezvous;
  ReportOwnFailure(1, absl::OutOfRangeError("training diverged"), &rendezvous);
  // Its later failures are only consequences.
  EXPECT_THAT(Find(1, 0, kLost, &rendezvous),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 1 has given up: training diverged"));
  EXPECT_THAT(Find(0, 1, kLost, &rendezvous),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 1 has given up: training diverged"));
}

TEST(CulpritTest, Rank0HearsWhoHasGivenUp) {
  LocalRendezvous rendezvous;
  ReportOwnFailure(3, absl::UnknownError("ValueError: x"), &rendezvous);
  // Rank 1 is a victim, and rank 2 has reported nothing.
  Find(1, 3, kLost, &rendezvous).IgnoreError();
  EXPECT_OK(CheckGivenUp(3, &rendezvous));
  EXPECT_THAT(CheckGivenUp(4, &rendezvous),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 3 has given up: ValueError: x"));
  ReportOwnFailure(2, absl::UnknownError("RuntimeError: y"), &rendezvous);
  EXPECT_THAT(CheckGivenUp(4, &rendezvous),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 2 has given up: RuntimeError: y; rank 3 has "
                       "given up: ValueError: x"));
}

// A rendezvous whose keeper is dead or stuck, as a rank sees it.
class AwayRendezvous : public Rendezvous {
 public:
  explicit AwayRendezvous(absl::Status status) : status_(std::move(status)) {}
  absl::Status Put(absl::string_view, absl::string_view) override {
    return status_;
  }
  absl::StatusOr<std::string> Get(absl::string_view, absl::Duration) override {
    return status_;
  }

 private:
  const absl::Status status_;
};

TEST(CulpritTest, WithoutTheRendezvousRank0IsToBlame) {
  AwayRendezvous gone(absl::UnavailableError("connection refused"));
  EXPECT_THAT(Find(1, 2, kLost, &gone),
              IsUnavailable(StartsWith("rank 0 is dead: ")));
  AwayRendezvous silent(absl::DeadlineExceededError("no answer"));
  EXPECT_THAT(Find(1, 2, kLost, &silent),
              IsDeadlineExceeded(StartsWith("rank 0 is stuck: ")));
}

// Rank 0 may be stuck, and each try would take time.
TEST(CulpritTest, ALostRank0IsToldNothing) {
  LocalRendezvous rendezvous;
  for (const auto code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded}) {
    const absl::Status lost = BlameRank(0, code, "it does not answer");
    EXPECT_TRUE(IsWithoutRank0(lost));
    ReportOwnFailure(1, lost, &rendezvous);
  }
  EXPECT_THAT(rendezvous.Get("failure/1", absl::ZeroDuration()),
              IsDeadlineExceeded());
  const absl::Status other = BlameRank(2, absl::StatusCode::kUnavailable, "");
  EXPECT_FALSE(IsWithoutRank0(other));
  EXPECT_FALSE(IsWithoutRank0(BlameCorruptRank(0, "bad sector")));
  EXPECT_FALSE(IsWithoutRank0(absl::UnavailableError("something else")));
  ReportOwnFailure(1, other, &rendezvous);
  EXPECT_OK(rendezvous.Get("failure/1", absl::ZeroDuration()));
}

TEST(CulpritTest, TwoThatBlameEachOtherHaveABrokenLink) {
  LocalRendezvous rendezvous;
  const auto broken = IsDeadlineExceeded("0", "1", "cannot reach each other");
  std::thread rank1(
      [&] { EXPECT_THAT(Find(1, 0, kWaited, &rendezvous), broken); });
  EXPECT_THAT(Find(0, 1, kWaited, &rendezvous), broken);
  rank1.join();
  const absl::Status third = Find(2, 1, kWaited, &rendezvous);
  EXPECT_THAT(third, broken);
  EXPECT_EQ(RankTroubleOf(third)->kind(), v1::RankTrouble::SLOW_LINK);
}

// Rank 3 does not reach rank 0, and so cannot report.
TEST(CulpritTest, ASilentRankThatOthersReachHasABrokenLink) {
  LocalRendezvous rendezvous;
  std::thread rank1([&] {
    EXPECT_EQ(RankTroubleOf(Find(1, 3, kLost, &rendezvous))->kind(),
              v1::RankTrouble::SLOW_LINK);
  });
  const auto broken = RankTroubleOf(Find(0, 3, kWaited, &rendezvous, {3}));
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->kind(), v1::RankTrouble::SLOW_LINK);
  EXPECT_EQ(broken->rank(), 0);
  EXPECT_EQ(broken->to_rank(), 3);
  rank1.join();
}

TEST(CulpritTest, ASilentRankThatNobodyReachesIsDead) {
  LocalRendezvous rendezvous;
  std::vector<std::thread> others;
  for (const int rank : {1, 2, 4}) {
    others.emplace_back([&rendezvous, rank] {
      EXPECT_THAT(Find(rank, 3, kWaited, &rendezvous, {3}),
                  IsUnavailable(StartsWith("rank 3 is dead: ")));
    });
  }
  EXPECT_THAT(Find(0, 3, kWaited, &rendezvous, {3}),
              IsUnavailable("its host cannot be reached"));
  for (std::thread& other : others) other.join();
}

// Nothing comes from the other rank of that host either.
TEST(CulpritTest, AHostIsDeadWhenTheRanksThatAreLeftHaveSaidSo) {
  LocalRendezvous rendezvous;
  std::vector<std::thread> others;
  for (const int rank : {1, 4}) {
    others.emplace_back([&rendezvous, rank] {
      EXPECT_THAT(Find(rank, rank == 1 ? 2 : 3, kWaited, &rendezvous, {2, 3},
                       absl::InfiniteDuration()),
                  IsUnavailable("its host cannot be reached"));
    });
  }
  EXPECT_THAT(
      Find(0, 2, kWaited, &rendezvous, {2, 3}, absl::InfiniteDuration()),
      IsUnavailable(StartsWith("rank 2 is dead: ")));
  for (std::thread& other : others) other.join();
  EXPECT_THAT(Reaches(0, 3, {}, &rendezvous), Optional(false));
  EXPECT_THAT(Reaches(0, 4, {}, &rendezvous), Optional(true));
  EXPECT_EQ(Reaches(3, 0, {}, &rendezvous), std::nullopt);
}

// Ranks 0 and 1 do not reach that host. Rank 4 does, but reports late.
TEST(CulpritTest, AHostThatALateRankReachesIsNotDead) {
  LocalRendezvous rendezvous;
  const auto broken = IsDeadlineExceeded("and 2 cannot reach each other");
  std::thread rank1([&] {
    EXPECT_THAT(Find(1, 2, kWaited, &rendezvous, {2, 3}), broken);
  });
  std::thread rank4([&] {
    absl::SleepFor(absl::Seconds(1.2));
    EXPECT_THAT(Find(4, 0, kLost, &rendezvous), broken);
  });
  EXPECT_THAT(Find(0, 2, kWaited, &rendezvous, {2, 3}), broken);
  rank1.join();
  rank4.join();
}

TEST(CulpritTest, ALinkThatCannotBeMadeIsToldToAll) {
  LocalRendezvous rendezvous;
  EXPECT_OK(CheckUnconnected({}, &rendezvous));
  const absl::Status seen = ReportBrokenLink(3, 2, "no answer", &rendezvous);
  for (const absl::Status& status : {seen, CheckUnconnected({}, &rendezvous)}) {
    const auto trouble = RankTroubleOf(status);
    ASSERT_TRUE(trouble.has_value()) << status;
    EXPECT_EQ(trouble->kind(), v1::RankTrouble::SLOW_LINK);
    EXPECT_EQ(trouble->rank(), 3);
    EXPECT_EQ(trouble->to_rank(), 2);
    EXPECT_THAT(trouble->text(), HasSubstr("no answer"));
  }
}

TEST(CulpritTest, ARankThatConnectsBlamesRank0IfItsTableStaysAway) {
  AwayRendezvous gone(absl::UnavailableError("connection refused"));
  const absl::Status status = CheckWhileConnecting(&gone);
  EXPECT_THAT(status, IsUnavailable(StartsWith("rank 0 is dead: "),
                                    HasSubstr("connection refused")));
  EXPECT_TRUE(IsWithoutRank0(status));
  // It may be stopped, and continue.
  AwayRendezvous silent(absl::DeadlineExceededError("no answer"));
  EXPECT_OK(CheckWhileConnecting(&silent));
}

// A table to which the first two connections break.
class ReturningRendezvous : public LocalRendezvous {
 public:
  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Duration timeout) override {
    if (breaks_ > 0) {
      --breaks_;
      return absl::UnavailableError("connection reset");
    }
    return LocalRendezvous::Get(key, timeout);
  }

 private:
  int breaks_ = 2;
};

TEST(CulpritTest, ASingleConnectionToTheTableMayBreak) {
  ReturningRendezvous idle;
  EXPECT_OK(CheckWhileConnecting(&idle));
  ReturningRendezvous rendezvous;
  ReportDeadRank(2, "killed", &rendezvous);
  const auto trouble = RankTroubleOf(CheckWhileConnecting(&rendezvous));
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->rank(), 2);
}

}  // namespace
}  // namespace causeway
