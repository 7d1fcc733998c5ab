// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/journal.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr absl::Time kNow = absl::UnixEpoch();

class JournalTest : public testing::Test {
 protected:
  // Enters an event that changes an island's membership and is reported to
  // people.
  Journal::Entry Join(const std::string& island) {
    Effects effects;
    effects.joined.push_back({.island_id = island, .incarnation = 1});
    effects.events.push_back({"island_joined", island, island + " joined"});
    return journal_.Enter(effects, kNow);
  }
  Journal::Entry Nothing() {
    Effects effects;
    return journal_.Enter(effects, kNow);
  }
  // Writes the entry's batch, and returns the answer to a caller with `result`.
  absl::Status Answer(const Journal::Entry& entry, const absl::Status& outcome,
                      const absl::Status& result = absl::OkStatus()) {
    const absl::Status written =
        entry.batch == nullptr ? absl::OkStatus() : journal_.Written(outcome);
    return Journal::Answer(entry, written, result);
  }
  static std::vector<std::string> Texts(const LogBatch& batch) {
    std::vector<std::string> texts;
    for (const auto& event : batch.events) texts.push_back(event.text);
    return texts;
  }

  Journal journal_;
  const absl::Status full_ = absl::ResourceExhaustedError("no space");
  const absl::Status unknown_ = absl::UnknownError("a sync failed");
};

TEST_F(JournalTest, AChangeIsWrittenBeforeItIsTold) {
  Effects effects;
  effects.changed.push_back({.island_id = "a", .incarnation = 1});
  Journal::Entry entry = journal_.Enter(effects, kNow);
  EXPECT_FALSE(effects.view_changed) << "the rules say that";
  ASSERT_NE(entry.batch, nullptr);
  EXPECT_THAT(entry.batch->members, SizeIs(1));
  EXPECT_OK(Answer(entry, absl::OkStatus()));

  entry = Nothing();
  EXPECT_EQ(entry.batch, nullptr) << "all is written";
  EXPECT_THAT(Answer(entry, full_, absl::AbortedError("refused")), IsAborted());
}

TEST_F(JournalTest, AnEventChangesTheView) {
  Effects effects;
  effects.events.push_back({"island_joined", "a", "a joined"});
  const Journal::Entry entry = journal_.Enter(effects, kNow);
  EXPECT_TRUE(effects.view_changed);
  ASSERT_THAT(entry.events, SizeIs(1));
  EXPECT_EQ(entry.events[0].text, "a joined");
  EXPECT_EQ(entry.events[0].time, kNow);
}

TEST_F(JournalTest, UnwrittenChangesAreWrittenFirstTheNextTime) {
  EXPECT_THAT(Answer(Join("a"), full_), IsUnavailable("no space"));
  Journal::Entry entry = Nothing();
  ASSERT_NE(entry.batch, nullptr);
  EXPECT_FALSE(entry.changes);
  EXPECT_THAT(entry.events, SizeIs(0)) << "they have been told";
  // A success may rest on unwritten changes; a refusal does not.
  EXPECT_THAT(Answer(entry, full_), IsUnavailable());
  EXPECT_THAT(Answer(Nothing(), full_, absl::AbortedError("refused")),
              IsAborted());
  // A refusal that changes something must be written, too.
  entry = Join("b");
  EXPECT_THAT(entry.events, SizeIs(1));
  EXPECT_THAT(Texts(*entry.batch), ElementsAre("a joined", "b joined"));
  EXPECT_THAT(Answer(entry, full_, absl::AbortedError("refused")),
              IsUnavailable());
  EXPECT_OK(Answer(Nothing(), absl::OkStatus()));
  EXPECT_EQ(Nothing().batch, nullptr);
}

TEST_F(JournalTest, AnEventWhoseWriteIsFoundIsNotWrittenAgain) {
  for (const bool found : {true, false}) {
    EXPECT_THAT(Answer(Join("a"), unknown_), IsUnavailable());
    EXPECT_THAT(
        Answer(Join("b"), absl::FailedPreconditionError("refused by the log")),
        IsUnavailable());
    Effects effects;
    journal_.Reconciled({.found = found}, effects);
    const std::string told = effects.events.at(0).text;
    EXPECT_THAT(told, HasSubstr(found ? "is there" : "is not there"));
    const Journal::Entry entry = journal_.Enter(effects, kNow);
    if (found) {
      EXPECT_THAT(Texts(*entry.batch), ElementsAre("b joined", told));
    } else {
      EXPECT_THAT(Texts(*entry.batch),
                  ElementsAre("a joined", "b joined", told));
    }
    EXPECT_THAT(entry.batch->members, SizeIs(2));
    EXPECT_OK(Answer(entry, absl::OkStatus()));
  }
}

TEST_F(JournalTest, ASnapshotIsWrittenWithTheNextEntry) {
  journal_.AddSnapshot({.file = "snapshot"});
  const Journal::Entry entry = Nothing();
  ASSERT_NE(entry.batch, nullptr);
  ASSERT_THAT(entry.batch->snapshots, SizeIs(1));
  EXPECT_EQ(entry.batch->snapshots[0].file, "snapshot");
}

class JournalCommitTest : public JournalTest {
 protected:
  JournalCommitTest() {
    const v1::IslandIdentity a = run_.Join("a", 1);
    EXPECT_OK(run_.Contribute(Contribution(a, 0)));
    order_ = run_.closed_rounds().at(0);
    outcome_.head.set_version(1);
  }

  absl::StatusOr<LogBatch> Begin() {
    return journal_.BeginCommit(
        run_.core(), order_, outcome_, {0.5f},
        {.head = outcome_.head, .committed_at = absl::FromUnixSeconds(7)});
  }

  CoordinatorDriver run_{{}};
  ClosedRound order_;
  OuterStepOutcome outcome_;
};

TEST_F(JournalCommitTest, HasTheMergeAndItsEvents) {
  order_.admitted = {3};
  ASSERT_OK_AND_ASSIGN(const LogBatch batch, Begin());
  ASSERT_THAT(batch.commits, SizeIs(1));
  EXPECT_EQ(batch.commits[0].head.version(), 1);
  EXPECT_THAT(batch.admitted, ElementsAre(3));
  ASSERT_THAT(batch.contributions, SizeIs(1));
  const ContributionRecord& record = batch.contributions[0];
  EXPECT_EQ(record.island_id, "a");
  EXPECT_EQ(record.tokens, order_.contributions[0].tokens());
  EXPECT_EQ(record.weight, 0.5);
  EXPECT_EQ(record.norm, order_.norms[0]);
  EXPECT_EQ(record.fate, ContributionFate::kMerged);
  EXPECT_EQ(record.at, absl::FromUnixSeconds(7));
  EXPECT_THAT(Texts(batch), ElementsAre(HasSubstr("is at version 1")));
  EXPECT_EQ(Nothing().batch, nullptr) << "the host writes it";
}

TEST_F(JournalCommitTest, IsRefusedOnceTheCoordinatorWasReplaced) {
  Effects effects;
  run_.core().StandDown(2, effects);
  EXPECT_THAT(Begin().status(), IsUnavailable());
}

TEST_F(JournalCommitTest, IsInDoubtUntilItIsReconciled) {
  for (const bool found : {true, false}) {
    ASSERT_OK(Begin());
    EXPECT_EQ(journal_.OutcomeOfCommit(0, unknown_), std::nullopt);
    Effects effects;
    journal_.Reconciled({.found = found, .fragment = 0}, effects);
    // Another fragment's commit comes into doubt before this one's host looks.
    journal_.Reconciled({.found = !found, .fragment = 1}, effects);
    ASSERT_NE(journal_.OutcomeOfCommit(0, unknown_), std::nullopt);
    EXPECT_EQ(journal_.OutcomeOfCommit(0, unknown_)->ok(), found);
    EXPECT_EQ(journal_.OutcomeOfCommit(1, unknown_)->ok(), !found);
  }
}

TEST_F(JournalCommitTest, ADoubtfulCommitIsNoDoubtfulEvent) {
  EXPECT_FALSE(
      Answer(Join("b"), absl::FailedPreconditionError("in doubt")).ok());
  Effects effects;
  journal_.Reconciled({.found = true, .fragment = 0}, effects);
  EXPECT_THAT(Texts(*journal_.Enter(effects, kNow).batch),
              ElementsAre("b joined", HasSubstr("is there")));
}

TEST_F(JournalCommitTest, ADoubtfulEventIsNoDoubtfulCommit) {
  ASSERT_OK(Begin());
  EXPECT_FALSE(Answer(Join("b"), unknown_).ok());
  Effects effects;
  journal_.Reconciled({.found = true}, effects);
  EXPECT_EQ(journal_.OutcomeOfCommit(0, unknown_), std::nullopt);
}

}  // namespace
}  // namespace causeway
