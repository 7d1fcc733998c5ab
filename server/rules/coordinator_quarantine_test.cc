// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests all effects of events about a quarantined contribution, line by line.
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"
#include "server/rules/testing/effects_lines.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A run of islands a and b.
class QuarantineEffects : public testing::Test {
 protected:
  void SetUp() override {
    a_ = run_.Join("a");
    b_ = run_.Join("b");
    run_.Advance(absl::Seconds(2));
    TakeLines(run_);
  }
  // Puts b's contribution into quarantine, and takes the effects.
  void Hold(double norm) {
    ASSERT_FALSE(run_.Contribute(Contribution(b_, 0), norm).ok());
    TakeLines(run_);
  }
  absl::StatusOr<ContributionKey> Admit() {
    return run_.core().Admit(1, run_.now(), run_.effects());
  }

  const std::string what_ =
      "the contribution of island b (incarnation 1) to fragment 0, 1000 tokens";
  const std::string failed_ = "the outer step fails with it (not finite)";
  CoordinatorDriver run_{{.min_islands = 2, .parameter_norm = 1}};
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
};

TEST_F(QuarantineEffects, OfHoldingAndDropping) {
  ASSERT_FALSE(run_.Contribute(Contribution(b_, 0), kNaN).ok());
  const std::string why = "a value of it is not finite";
  EXPECT_THAT(
      TakeLines(run_),
      ElementsAre(
          absl::StrCat("ended b/1 DIVERGED at 2s: its contribution to "
                       "fragment 0 was put aside: ",
                       why),
          "account b/1 process 1 has 0 reported 0",
          absl::StrCat("quarantine 1 b/1 HELD inadmissible norm nan at 2s: ",
                       why),
          absl::StrCat("contribution_quarantined [b] ", what_,
                       ", is in quarantine as number 1: ", why),
          absl::StrCat(
              "island_evicted [b] island b (incarnation 1) was "
              "evicted: its contribution to fragment 0 was put aside: ",
              why),
          "discard b/1 f0 v0", "view"));
  ASSERT_OK(run_.core().Drop(1, run_.effects()));
  EXPECT_THAT(
      TakeLines(run_),
      ElementsAre(
          absl::StrCat("quarantine 1 b/1 DROPPED inadmissible norm nan at 2s: ",
                       why),
          absl::StrCat("contribution_dropped [b] ", what_,
                       ", is dropped from the quarantine")));
  ASSERT_OK(run_.core().Drop(1, run_.effects()));
  EXPECT_THAT(TakeLines(run_), IsEmpty());
}

TEST_F(QuarantineEffects, OfAdmitting) {
  Hold(100);
  ASSERT_OK(run_.Leave(a_));
  TakeLines(run_);
  ASSERT_OK_AND_ASSIGN(const ContributionKey key, Admit());
  ASSERT_THAT(run_.effects().outer_steps, SizeIs(1)) << "nobody is awaited";
  const ClosedRound closed = run_.effects().outer_steps[0];
  EXPECT_THAT(closed.norms, ElementsAre(100));
  EXPECT_THAT(closed.admitted, ElementsAre(1));
  EXPECT_THAT(TakeLines(run_), ElementsAre(absl::StrCat(
                                   "contribution_admitted [b] ", what_,
                                   ", goes from the quarantine into round 1")));
  EXPECT_THAT(Admit(), IsOkAndHolds(key));
  EXPECT_THAT(TakeLines(run_), IsEmpty()) << "asked for twice";
  // It is not handed in a second time.
  const v1::TokenLedger ledger = run_.core().IslandLedger({"b", 1});
  EXPECT_EQ(ledger.quarantined(), 1000);
  EXPECT_EQ(ledger.reported(), 1000);
  EXPECT_EQ(ledger.pending(), 0);

  OuterStepOutcome outcome;
  outcome.head.set_version(1);
  run_.core().OuterStepCommitted(closed, outcome, run_.now(), run_.effects());
  EXPECT_EQ(LinesOf(run_.effects())[1].substr(0, 30),
            "quarantine 1 b/1 ADMITTED norm");
}

TEST_F(QuarantineEffects, OfSettingAsideTheLargest) {
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9.5));
  TakeLines(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      TakeLines(run_),
      ElementsAre(
          absl::StrCat("ended b/1 DIVERGED at 2s: its contribution to "
                       "fragment 0 was put aside: ",
                       failed_),
          "account b/1 process 1 has 0 reported 0",
          absl::StrCat("quarantine 1 b/1 HELD norm 9.5 at 2s: ", failed_),
          absl::StrCat("contribution_quarantined [b] ", what_,
                       ", is in quarantine as number 1: ", failed_),
          absl::StrCat(
              "island_evicted [b] island b (incarnation 1) was "
              "evicted: its contribution to fragment 0 was put aside: ",
              failed_),
          "discard b/1 f0 v0", "view"));
  EXPECT_EQ(run_.core().run_state(), v1::RUNNING);
  EXPECT_THAT(run_.closed_rounds(), SizeIs(1));
}

TEST_F(QuarantineEffects, OfSettingAsideTheFirstOfEquals) {
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9));
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_EQ(
      run_.core().quarantine().entries().at(1).header.identity().island_id(),
      "a");
}

TEST_F(QuarantineEffects, OfSettingAsideWhatWasAdmitted) {
  Hold(100);
  ASSERT_OK(Admit());
  ASSERT_OK(run_.Contribute(Contribution(a_, 0)));
  TakeLines(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      TakeLines(run_),
      ElementsAre(absl::StrCat("quarantine 1 b/1 HELD inadmissible norm 100 at "
                               "2s: ",
                               failed_),
                  "discard b/1 f0 v0", "view"));
  EXPECT_THAT(Admit().status(), IsFailedPrecondition(failed_));
  EXPECT_THAT(run_.closed_rounds(), SizeIs(1));
}

TEST_F(QuarantineEffects, OfLeavingOutAnIslandThatIsGone) {
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9.5));
  ASSERT_OK(run_.Leave(b_));
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  const v1::IslandIdentity b = run_.Join("b");
  TakeLines(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      TakeLines(run_),
      ElementsAre("account b/1 process 1 has 0 reported 0",
                  "account b/2 process 1 has 0 reported 0", "late b/1 f0 v0",
                  absl::StrCat("contribution_late [b] the contribution of "
                               "island b (incarnation 1) is left out of round "
                               "1 of fragment 0: ",
                               failed_),
                  "discard b/1 f0 v0", "view"));
  EXPECT_OK(run_.core().Check(b));
}

}  // namespace
}  // namespace causeway
