// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what a restarted coordinator reads of the rounds and the quarantine,
// and how events are kept and found.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/event_filter.h"
#include "server/rules/norm_guard.h"
#include "server/rules/token_ledger.h"
#include "server/storage/commit_log.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

CommitRecord TestCommit(uint32_t fragment, uint64_t version) {
  CommitRecord commit{.committed_at = kStart};
  commit.head.set_fragment(fragment);
  commit.head.set_version(version);
  return commit;
}

ContributionRecord TestContribution(std::string island, uint64_t base_version,
                                    ContributionFate fate) {
  return {.fragment = 1,
          .base_version = base_version,
          .island_id = std::move(island),
          .incarnation = 3,
          .tokens = 1000,
          .inner_steps = 10,
          .fate = fate,
          .at = kStart};
}

// Returns a log of a run with version 0 of two fragments.
std::unique_ptr<CommitLog> OpenLog() {
  const std::string directory = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name());
  EXPECT_OK(CreateDirectory(directory));
  auto log = CommitLog::Open(absl::StrCat(directory, "/run.sqlite3"));
  EXPECT_OK(log);
  EXPECT_OK((*log)->CreateRun({.run_id = "run-1", .created_at = kStart}));
  LogBatch batch{.commits = {TestCommit(0, 0), TestCommit(1, 0)}};
  EXPECT_OK((*log)->Apply(batch));
  return *std::move(log);
}

TEST(CommitLogHistory, TheHistoryHasTheNormsOfWholeRounds) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  LogBatch batch;
  for (const uint64_t version : {0, 1, 2}) {
    for (const char* island : {"a", "b", "c"}) {
      batch.contributions.push_back(
          TestContribution(island, version, ContributionFate::kMerged));
      batch.contributions.back().norm = static_cast<double>(version);
    }
  }
  batch.contributions.push_back(
      TestContribution("d", 2, ContributionFate::kLate));
  ASSERT_OK(log->Apply(batch));
  const auto round_of = [](double norm) {
    return AllOf(SizeIs(3), Each(Field(&NormGuard::Sample::norm, norm)));
  };
  for (const uint64_t norms : {4, 5, 6}) {
    ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                         log->LoadHistory(2, norms));
    EXPECT_THAT(history.merged_norms,
                ElementsAre(IsEmpty(), ElementsAre(round_of(1), round_of(2))));
  }
}

TEST(CommitLogHistory, TheHistorySumsMergedContributions) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  LogBatch batch;
  for (const uint64_t version : {2, 5, 4}) {
    batch.contributions.push_back(
        TestContribution("a", version, ContributionFate::kMerged));
  }
  ASSERT_OK(log->Apply(batch));
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 1));
  using Settled = CoordinatorHistory::Settled;
  EXPECT_THAT(history.settled,
              ElementsAre(AllOf(Field(&Settled::tokens, 3000),
                                Field(&Settled::base_version, 5))));
}

TEST(CommitLogHistory, TheHistoryHasTheParticipation) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  for (const uint64_t version : {1, 2}) {
    CommitRecord commit = TestCommit(1, version);
    commit.participation.set_live(version + 4);
    commit.participation.set_contributing(version + 2);
    commit.participation.set_merged(version);
    LogBatch batch{.commits = {commit}};
    ASSERT_OK(log->Apply(batch));
  }
  const auto numbers = [](const v1::Participation& participation) {
    return std::vector<uint64_t>{participation.live(),
                                 participation.contributing(),
                                 participation.merged()};
  };
  ASSERT_OK_AND_ASSIGN(const CommitRecord commit, log->FindCommit(1, 2));
  EXPECT_THAT(numbers(commit.participation), ElementsAre(6, 4, 2));
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 1));
  EXPECT_THAT(numbers(history.last_rounds[1]), ElementsAre(6, 4, 2));
  EXPECT_THAT(numbers(history.participation), ElementsAre(11, 7, 3));
}

TEST(CommitLogHistory, TheHistoryHasQuarantinedTokensByFate) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  LogBatch batch;
  for (const v1::QuarantinedContribution::State state :
       {v1::QuarantinedContribution::HELD,
        v1::QuarantinedContribution::ADMITTED,
        v1::QuarantinedContribution::DROPPED}) {
    QuarantineEntry& entry = batch.quarantine.emplace_back();
    entry.id = batch.quarantine.size();
    entry.state = state;
    entry.header.mutable_identity()->set_island_id("a");
    entry.header.mutable_identity()->set_incarnation(3);
    entry.header.set_fragment(1);
    entry.header.set_tokens(1000 * entry.id);
    entry.header.set_restored_tokens(entry.id);
    entry.quarantined_at = kStart;
  }
  ASSERT_OK(log->Apply(batch));
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 1));
  using Settled = CoordinatorHistory::Settled;
  const auto settled = [](TokenLedger::Fate fate, uint64_t tokens,
                          uint64_t restored) {
    return AllOf(Field(&Settled::fragment, 1), Field(&Settled::fate, fate),
                 Field(&Settled::tokens, tokens),
                 Field(&Settled::restored, restored));
  };
  // The log has admitted contributions among the merged ones.
  EXPECT_THAT(history.settled,
              ElementsAre(settled(TokenLedger::Fate::kQuarantined, 1000, 1),
                          settled(TokenLedger::Fate::kRefused, 3000, 3)));
}

TEST(CommitLogHistory, ChangesOfAQuarantinedContributionAreWritten) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  QuarantineEntry entry{.id = 1,
                        .norm = 9,
                        .reason = "its norm",
                        .quarantined_at = kStart,
                        .admissible = true};
  LogBatch held{.quarantine = {entry}};
  ASSERT_OK(log->Apply(held));
  entry.reason = "the outer step fails";
  entry.admissible = false;
  LogBatch changed{.quarantine = {entry}};
  ASSERT_OK(log->Apply(changed));
  ASSERT_OK_AND_ASSIGN(const CoordinatorHistory history,
                       log->LoadHistory(2, 1));
  ASSERT_THAT(history.quarantine, SizeIs(1));
  EXPECT_EQ(history.quarantine[0].reason, "the outer step fails");
  EXPECT_FALSE(history.quarantine[0].admissible);
  EXPECT_EQ(history.quarantine[0].norm, 9);
}

TEST(CommitLogHistory, AccountsFlagsAndTheQuarantineComeBack) {
  const std::unique_ptr<CommitLog> log = OpenLog();
  LogBatch batch;
  batch.members.push_back({.island_id = "a",
                           .incarnation = 3,
                           .instance_id = 77,
                           .first_contribution_version = {0, 0}});
  batch.accounts.push_back(
      {.key = {"a", 3}, .process_tokens = 500, .reported = {400, -20}});
  QuarantineEntry& entry = batch.quarantine.emplace_back();
  entry.id = 4;
  entry.header.set_tokens(1000);
  entry.norm = 2.5;
  entry.reason = "its norm";
  entry.quarantined_at = kStart;
  entry.admissible = true;
  batch.flags = RunFlags{.paused = true,
                         .pause_reason = "maintenance",
                         .data_digest = "data of the run!",
                         .data_accepted = true};
  batch.contributions.push_back(
      TestContribution("a", 0, ContributionFate::kPartial));
  batch.contributions.back().norm = 7;
  batch.contributions.back().weight = 0.5;
  ASSERT_OK(log->Apply(batch));

  ASSERT_OK_AND_ASSIGN(CoordinatorHistory history, log->LoadHistory(2, 16));
  ASSERT_THAT(history.accounts, SizeIs(1));
  EXPECT_EQ(history.accounts[0].process, 77);
  EXPECT_EQ(history.accounts[0].process_tokens, 500);
  EXPECT_THAT(history.accounts[0].reported, ElementsAre(400, -20));
  ASSERT_THAT(history.quarantine, SizeIs(1));
  EXPECT_EQ(history.quarantine[0].id, 4);
  EXPECT_EQ(history.quarantine[0].header.tokens(), 1000);
  EXPECT_EQ(history.quarantine[0].norm, 2.5);
  EXPECT_EQ(history.quarantine[0].reason, "its norm");
  EXPECT_EQ(history.quarantine[0].quarantined_at, kStart);
  EXPECT_TRUE(history.quarantine[0].admissible);
  EXPECT_FALSE(history.flags.started);
  EXPECT_TRUE(history.flags.paused);
  EXPECT_EQ(history.flags.pause_reason, "maintenance");
  EXPECT_EQ(history.flags.data_digest, "data of the run!");
  EXPECT_TRUE(history.flags.data_accepted);
  ASSERT_THAT(history.merged_norms[1], SizeIs(1));
  EXPECT_EQ(history.merged_norms[1][0][0].inner_steps, 10);

  ASSERT_OK_AND_ASSIGN(const auto merged, log->MergedContributions(1, 0));
  ASSERT_THAT(merged, SizeIs(1));
  EXPECT_EQ(merged[0].incarnation, 3);
  EXPECT_EQ(merged[0].fate, ContributionFate::kPartial);
  EXPECT_EQ(merged[0].norm, 7);
  EXPECT_EQ(merged[0].weight, 0.5);
  EXPECT_EQ(merged[0].at, kStart);

  LogBatch resumed{.flags = RunFlags{.started = true}};
  ASSERT_OK(log->Apply(resumed));
  ASSERT_OK_AND_ASSIGN(history, log->LoadHistory(2, 16));
  EXPECT_TRUE(history.flags.started);
  EXPECT_FALSE(history.flags.paused);
  EXPECT_FALSE(history.flags.data_accepted);
}

class CommitLogEventsTest : public testing::Test {
 protected:
  const std::unique_ptr<CommitLog> log_ = OpenLog();
};

TEST_F(CommitLogEventsTest, APageOfEventsIsBounded) {
  LogBatch batch;
  for (int i = 0; i < 4; ++i) {
    batch.events.push_back(
        {.kind = "island_left",
         .text = std::string(CommitLog::kEventPageBytes / 2, 'x'),
         .time = kStart});
  }
  batch.events.push_back(
      {.kind = "island_left",
       .text = std::string(3 * CommitLog::kEventPageBytes, 'x'),
       .time = kStart});
  ASSERT_OK(log_->Apply(batch));
  EXPECT_THAT(log_->EventsAfter(0, 10), IsOkAndHolds(SizeIs(2)));
  EXPECT_THAT(log_->EventsAfter(2, 10), IsOkAndHolds(SizeIs(2)));
  EXPECT_THAT(log_->EventsAfter(4, 10), IsOkAndHolds(SizeIs(1)));
}

TEST_F(CommitLogEventsTest, EventsAreNumberedWithoutGaps) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(log_->Apply({.events = {{.kind = "island_joined",
                                       .island_id = "a",
                                       .text = absl::StrCat("event ", i),
                                       .time = kStart},
                                      {.kind = "island_left"}}}));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       log_->EventsAfter(2, 2));
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].id(), 3);
  EXPECT_EQ(ToTime(events[0].time()), kStart);
  EXPECT_EQ(events[0].kind(), "island_joined");
  EXPECT_EQ(events[0].island_id(), "a");
  EXPECT_EQ(events[0].text(), "event 1");
  EXPECT_EQ(events[1].id(), 4);
  EXPECT_THAT(log_->EventsAfter(UINT64_MAX, UINT64_MAX),
              IsOkAndHolds(IsEmpty()));
}

TEST_F(CommitLogEventsTest, AFilterFindsEventsBehindThousandsOfOthers) {
  LogBatch batch;
  const auto add = [&](absl::string_view kind) {
    batch.events.push_back(
        {.kind = std::string(kind),
         .time = kStart + absl::Seconds(batch.events.size())});
  };
  for (const absl::string_view kind : {"island_joined", "run_suspended"}) {
    for (int i = 0; i < 10'000; ++i) add("round_merged");
    add(kind);
  }
  for (int i = 0; i < 10'000; ++i) add("validated");
  ASSERT_OK(log_->Apply(batch));
  const auto ids = [](const absl::StatusOr<std::vector<v1::Event>>& events) {
    EXPECT_OK(events);
    std::vector<uint64_t> ids;
    for (const v1::Event& event : *events) ids.push_back(event.id());
    return ids;
  };
  const EventFilter notices = {.min_severity = v1::NOTICE};
  EXPECT_THAT(ids(log_->EventsAfter(0, 10, notices)),
              ElementsAre(10'001, 20'002));
  EXPECT_THAT(ids(log_->EventsAfter(0, 1, notices)), ElementsAre(10'001));
  EXPECT_THAT(ids(log_->EventsAfter(20'002, 10, notices)), IsEmpty());
  EXPECT_THAT(ids(log_->NewestEvents(0, 10, notices)),
              ElementsAre(10'001, 20'002));
  EXPECT_THAT(ids(log_->NewestEvents(0, 1, notices)), ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(10'001, 10, notices)),
              ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(0, 2)), ElementsAre(30'001, 30'002));
  EXPECT_THAT(
      ids(log_->EventsAfter(0, 10,
                            {.kinds = {"run_suspended", "island_joined"},
                             .since = kStart + absl::Seconds(10'001)})),
      ElementsAre(20'002));
  // A single kind has an index.
  const EventFilter suspended = {.kinds = {"run_suspended"}};
  EXPECT_THAT(ids(log_->NewestEvents(0, 9, suspended)), ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(20'002, 9, suspended)), IsEmpty());
  EXPECT_THAT(ids(log_->EventsAfter(0, 9, suspended)), ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(0, 9, {.kinds = {"run_paused"}})),
              IsEmpty());
  const EventFilter merged = {.kinds = {"round_merged"}};
  EXPECT_THAT(ids(log_->NewestEvents(0, 2, merged)),
              ElementsAre(20'000, 20'001));
  EXPECT_THAT(ids(log_->EventsAfter(9'999, 2, merged)),
              ElementsAre(10'000, 10'002));
  EXPECT_THAT(log_->EventsAfter(0, 15'000, merged),
              IsOkAndHolds(SizeIs(15'000)));
  const auto newest = log_->NewestEvents(0, 1, notices);
  ASSERT_OK(newest);
  EXPECT_EQ(newest->at(0).severity(), v1::CRITICAL);
}

}  // namespace
}  // namespace causeway
