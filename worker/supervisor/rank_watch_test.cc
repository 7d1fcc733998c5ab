// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/rank_watch.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::Optional;

constexpr WatchLimits kLimits = {.least = absl::Seconds(10),
                                 .most = absl::Seconds(600),
                                 .silence = absl::Seconds(10)};

class FindStuckRankTest : public testing::Test {
 protected:
  // Four ranks whose steps took up to 4 s and whose operations took up to 3 s.
  FindStuckRankTest() : ranks_(4) {
    for (int i = 0; i < 4; ++i) {
      ranks_[i].rank = 4 + i;
      ranks_[i].rounds = kFirstRounds;
      Lane(i, RankLane::kTraining)
          .longest[static_cast<int>(RankSection::kStep)] = absl::Seconds(4);
      Lane(i, RankLane::kTrainingCollective)
          .longest[static_cast<int>(RankSection::kCollective)] =
          absl::Seconds(3);
    }
  }

  RankView::Lane& Lane(int i, RankLane lane) {
    return ranks_[i].lanes[static_cast<int>(lane)];
  }
  // Makes rank i be in a step for `step`, and, unless `operation` is 0, in an
  // operation within it for `operation`.
  void SetStep(int i, absl::Duration step, absl::Duration operation = {}) {
    Lane(i, RankLane::kTraining).section = RankSection::kStep;
    Lane(i, RankLane::kTraining).time = step;
    if (operation == absl::ZeroDuration()) return;
    Lane(i, RankLane::kTrainingCollective).section = RankSection::kCollective;
    Lane(i, RankLane::kTrainingCollective).time = operation;
  }
  // Returns the text of a sure fault, the rank's number if it is not sure, or
  // "".
  std::string Found() const {
    const std::optional<RankFault> fault = FindStuckRank(ranks_, kLimits);
    if (!fault.has_value()) return "";
    return fault->is_sure ? fault->text : std::to_string(fault->rank);
  }

  std::vector<RankView> ranks_;
};

TEST_F(FindStuckRankTest, FiveTimesTheLongestTimeIsAllowed) {
  SetStep(0, absl::Seconds(20));
  SetStep(1, absl::Seconds(20), absl::Seconds(15));
  EXPECT_EQ(Found(), "");
}

TEST_F(FindStuckRankTest, AProcessThatDoesNotRunIsStuck) {
  ranks_[2].silence = absl::Seconds(10);
  EXPECT_EQ(Found(), "");
  ranks_[2].silence = absl::Seconds(10.1);
  EXPECT_THAT(Found(),
              HasSubstr("rank 6 is stuck: its process has not run for 10.1s"));
}

TEST_F(FindStuckRankTest, AProcessThatASignalHasStoppedIsStuckSooner) {
  ranks_[2].is_stopped = true;
  ranks_[2].silence = kLimits.stopped;
  EXPECT_EQ(Found(), "");
  ranks_[2].silence = absl::Seconds(0.6);
  EXPECT_THAT(Found(), HasSubstr("rank 6 is stuck: its process has not run for "
                                 "600ms; a signal has stopped it"));
}

TEST_F(FindStuckRankTest, IfNoProcessRunsTheHostIsToBlame) {
  for (RankView& rank : ranks_) rank.silence = absl::Seconds(11);
  EXPECT_THAT(Found(), HasSubstr("all ranks of a host are stuck, from rank 4"));
}

TEST_F(FindStuckRankTest, TheHostIsBlamedEvenIfOneRankExceedsTheLimitFirst) {
  for (RankView& rank : ranks_) rank.silence = absl::Seconds(9.9);
  ranks_[1].silence = absl::Seconds(10.1);
  EXPECT_THAT(Found(), HasSubstr("all ranks of a host are stuck, from rank 5"));
  for (RankView& rank : ranks_) {
    rank.is_stopped = true;
    rank.silence = absl::Seconds(0.45);
  }
  EXPECT_EQ(Found(), "");
  ranks_[1].silence = absl::Seconds(0.55);
  EXPECT_THAT(Found(), HasSubstr("all ranks of a host are stuck, from rank 5"));
  ranks_[3].is_stopped = false;
  ranks_[3].silence = absl::ZeroDuration();
  EXPECT_THAT(Found(), HasSubstr("rank 5 is stuck"));
}

TEST_F(FindStuckRankTest, AWaitingRankIsNotStuck) {
  for (const int i : {0, 1, 3}) {
    SetStep(i, absl::Seconds(30), absl::Seconds(29));
  }
  SetStep(2, absl::Seconds(30));
  EXPECT_THAT(Found(), HasSubstr("rank 6 is stuck: it has been in a step for "
                                 "30s (the longest so far took 4s)"));
}

TEST_F(FindStuckRankTest, IfAllRanksWaitTheFaultIsNotSure) {
  for (const int i : {0, 1, 2, 3}) {
    SetStep(i, absl::Seconds(30), absl::Seconds(29));
  }
  EXPECT_EQ(Found(), "4");
}

// Ranks in PyTorch wait for one another without a stamp.
TEST_F(FindStuckRankTest, IfSeveralAreBusyAndNoneWaitsTheFaultIsNotSure) {
  SetStep(0, absl::Seconds(20.1));
  SetStep(2, absl::Seconds(19.9));
  EXPECT_EQ(Found(), "4");
  SetStep(3, absl::Seconds(30), absl::Seconds(29));
  EXPECT_THAT(Found(), HasSubstr("rank 4 is stuck"));
}

TEST_F(FindStuckRankTest, TheReplicaIsWatchedToo) {
  RankView::Lane& lane = Lane(1, RankLane::kReplica);
  lane.section = RankSection::kEncoding;
  lane.longest[static_cast<int>(RankSection::kEncoding)] =
      absl::Milliseconds(10);
  lane.time = absl::Seconds(9);
  EXPECT_EQ(Found(), "") << "the least limit";
  lane.time = absl::Seconds(11);
  EXPECT_THAT(Found(), HasSubstr("rank 5 is stuck"));
}

TEST_F(FindStuckRankTest, NewActivitiesMayTakeTheMostTime) {
  SetStep(0, absl::Seconds(599));
  ranks_[3].rounds = kFirstRounds - 1;
  EXPECT_EQ(Found(), "") << "the first rounds";
  ranks_[3].rounds = kFirstRounds;
  EXPECT_THAT(Found(), HasSubstr("rank 4 is stuck"));
  Lane(0, RankLane::kTraining).section = RankSection::kValidation;
  EXPECT_EQ(Found(), "") << "the first validation";
  Lane(0, RankLane::kTraining).time = absl::Seconds(601);
  EXPECT_THAT(Found(), HasSubstr("rank 4 is stuck"));
}

TEST(RestartBudgetTest, EndsAfterFourStartsWithoutProgress) {
  RestartBudget budget;
  EXPECT_THAT(budget.AfterFailureAt(50, /*is_limited=*/true),
              Optional(absl::ZeroDuration()));
  EXPECT_THAT(budget.AfterFailureAt(50, /*is_limited=*/true),
              Optional(absl::Seconds(1)));
  EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/true),
              Optional(absl::Seconds(2)));
  EXPECT_THAT(budget.AfterFailureAt(49, /*is_limited=*/true),
              Optional(absl::Seconds(4)));
  EXPECT_THAT(budget.AfterFailureAt(50, /*is_limited=*/true), Eq(std::nullopt));
}

TEST(RestartBudgetTest, ProgressRenewsIt) {
  RestartBudget budget;
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(budget.AfterFailureAt(10 * i, /*is_limited=*/true),
                Optional(testing::_));
    EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/true),
                Optional(testing::_));
  }
}

TEST(RestartBudgetTest, WithoutALimitPausesGrowToAMinute) {
  RestartBudget budget;
  for (const int seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/false),
                Optional(absl::Seconds(seconds)));
  }
  for (int i = 0; i < 5000; ++i) budget.AfterFailureAt(0, /*is_limited=*/false);
  EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/false),
              Optional(absl::Minutes(1)));
}

// A host may lead an island after long attempts to be taken in by another.
TEST(RestartBudgetTest, OnlyFailuresWithALimitUseItUp) {
  RestartBudget budget;
  for (int i = 0; i < 10; ++i) budget.AfterFailureAt(0, /*is_limited=*/false);
  for (int i = 0; i < RestartBudget::kMost; ++i) {
    EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/true),
                Optional(absl::Minutes(1)));
  }
  EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/false),
              Optional(absl::Minutes(1)));
  EXPECT_THAT(budget.AfterFailureAt(0, /*is_limited=*/true), Eq(std::nullopt));
}

}  // namespace
}  // namespace causeway
