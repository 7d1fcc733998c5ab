// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests an engine whose islands or disk misbehave.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/strips/layout.h"
#include "server/engine.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;

class EngineFaultsTest : public testing::Test {
 protected:
  // Starts a run with two islands, and fetches fragment 0.
  void StartRun(const v1::RunConfig& config) {
    ASSERT_OK(run_.Start(config));
    ASSERT_OK_AND_ASSIGN(a_, run_.Join("a"));
    ASSERT_OK_AND_ASSIGN(b_, run_.Join("b"));
    ASSERT_OK_AND_ASSIGN(anchor_, run_.Fetch(a_, 0, 0));
  }

  absl::StatusOr<v1::ContributeResponse> Contribute(
      const v1::IslandIdentity& island) {
    return run_.Contribute(
        run_.MakeContribution(island, 0, 0, anchor_, Shifted(anchor_, 0.01f)));
  }

  EngineDriver run_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
  std::vector<float> anchor_;
};

TEST_F(EngineFaultsTest, ValuesThatAreNotFiniteAreQuarantined) {
  StartRun(TestRunConfig());
  std::vector<float> diverged = anchor_;
  diverged[3] = NAN;
  EXPECT_THAT(
      run_.Contribute(run_.MakeContribution(a_, 0, 0, anchor_, diverged)),
      IsOutOfRange());
  EXPECT_THAT(run_.Heartbeat(a_), IsOutOfRange());
  EXPECT_THAT(run_.engine().Admit(1), IsFailedPrecondition());
  // The round continues without the contribution, even after a restart.
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_THAT(run_.Heartbeat(a_), IsOutOfRange());
  ASSERT_OK(Contribute(b_));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> merged, run_.Fetch(b_, 0, 1));
  for (const float value : merged) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(run_.engine().GetRun().ledger().quarantined(), 1000);
  ASSERT_OK(run_.engine().Drop(1));
  EXPECT_EQ(run_.engine().GetRun().ledger().refused(), 1000);
}

// Four ranks hold a fragment of several strips.
TEST_F(EngineFaultsTest, TheQuarantineNamesTheRankWithWrongValues) {
  StartRun(TestRunConfig(R"pb(
    model { hidden_size: 256 intermediate_size: 1024 }
    training { total_steps: 200 }
    synchronization { fragments: 1 }
  )pb"));
  const uint64_t part = anchor_.size() / 4;
  ASSERT_GT(part, 2 * kStripValues);
  uint64_t version = 0;
  const auto contribute = [&](const v1::IslandIdentity& island,
                              absl::Span<const float> parameters) {
    TestContribution contribution =
        run_.MakeContribution(island, 0, version, anchor_, parameters);
    for (const uint64_t end : {part, 2 * part, 3 * part, anchor_.size()}) {
      contribution.header.add_rank_ends(end);
    }
    return run_.Contribute(contribution);
  };
  const std::vector<float> sound = Shifted(anchor_, 0.01f);
  ASSERT_OK(contribute(b_, sound));
  // Expects that b's `wrong` parameters are refused, and merges a's.
  uint64_t process = 1;
  const auto expect_refused = [&](absl::Span<const float> wrong,
                                  const std::string& reason) {
    ASSERT_OK(contribute(a_, sound));
    ASSERT_TRUE(run_.AwaitVersion(0, ++version));
    EXPECT_THAT(contribute(b_, wrong), IsOutOfRange(reason));
    ASSERT_OK_AND_ASSIGN(b_, run_.Join("b", ++process));
  };
  for (const float value : {1e30f, NAN}) {
    for (const uint64_t rank : {0, 2, 3}) {
      std::vector<float> wrong = sound;
      wrong[(rank + 1) * part - kStripValues - 5] = value;
      expect_refused(wrong,
                     absl::StrCat("values of rank ", rank, " (of 4) it would"));
    }
    expect_refused(std::vector<float>(sound.size(), value),
                   "no single rank's part");
  }
  const v1::ListQuarantineResponse held = run_.engine().ListQuarantine(false);
  ASSERT_EQ(held.contributions_size(), 8);
  EXPECT_THAT(held.contributions(0).reason(), HasSubstr("rank 0 (of 4)"));
}

TEST_F(EngineFaultsTest, ACommitAndItsEventAreOneTransaction) {
  StartRun(TestRunConfig());
  ASSERT_OK(run_.RefuseInserts("events"));
  ASSERT_OK(Contribute(a_));
  ASSERT_OK(Contribute(b_));
  ASSERT_TRUE(
      run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
  EXPECT_EQ(run_.Head(0).version(), 0);
  ASSERT_OK(run_.AllowInserts());
  run_.AdvanceSeconds(6);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 100));
  EXPECT_EQ(
      std::count_if(events.begin(), events.end(),
                    [](const auto& e) { return e.kind() == "round_merged"; }),
      1);
}

// The removal is noticed even if no island contributes.
TEST_F(EngineFaultsTest, ALogThatIsRemovedSuspendsTheRun) {
  StartRun(TestRunConfig());
  const std::string log = run_.state_dir() + "/run.sqlite3";
  std::filesystem::rename(log, log + ".away");
  const auto is_suspended = [&] {
    return run_.engine().run_state() == v1::SUSPENDED;
  };
  ASSERT_TRUE(run_.Await(is_suspended));
  EXPECT_THAT(run_.engine().GetRun().message(),
              HasSubstr(log + " was removed"));
  for (const v1::IslandIdentity& island : {a_, b_}) {
    EXPECT_THAT(Contribute(island), IsUnavailable());
  }
  ASSERT_TRUE(
      run_.Await([&] { return std::filesystem::exists(log + ".rescued"); }));
  EXPECT_EQ(run_.Head(0).version(), 0);
  std::filesystem::rename(log + ".away", log);
  // The round that was held up closes.
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_EQ(run_.engine().run_state(), v1::RUNNING);
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 100));
  EXPECT_EQ(
      std::count_if(events.begin(), events.end(),
                    [](const auto& e) { return e.kind() == "run_suspended"; }),
      1);
}

TEST_F(EngineFaultsTest, AnOutlierIsKeptAcrossARestartAndMergedOnRequest) {
  const v1::RunConfig config = TestRunConfig(
      "training { total_steps: 80 } "
      "outer_optimizer { algorithm: SGD learning_rate: 0.7 }");
  StartRun(config);
  const auto contribute = [&](const v1::IslandIdentity& island,
                              uint64_t version, float amount) {
    const std::vector<float> anchor = *run_.Fetch(island, 0, version);
    return run_.Contribute(run_.MakeContribution(island, 0, version, anchor,
                                                 Shifted(anchor, amount)));
  };
  for (const uint64_t version : {0, 1}) {
    ASSERT_OK(contribute(a_, version, 0.01f));
    ASSERT_OK(contribute(b_, version, 0.01f));
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  }
  EXPECT_THAT(contribute(b_, 2, 1),
              IsOutOfRange("more than 10 times the median"));

  ASSERT_OK(run_.Start(config));
  const v1::ListQuarantineResponse held = run_.engine().ListQuarantine(false);
  ASSERT_EQ(held.contributions_size(), 1);
  EXPECT_TRUE(held.contributions(0).admissible());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> before, run_.Fetch(a_, 0, 2));
  ASSERT_OK(run_.engine().Admit(1));
  ASSERT_OK(run_.engine().Admit(1)) << "asked for twice";
  ASSERT_OK(contribute(a_, 2, 0.01f));
  ASSERT_TRUE(run_.AwaitVersion(0, 3));
  // The mean of both, times the outer learning rate of 0.7.
  ASSERT_OK_AND_ASSIGN(const std::vector<float> after, run_.Fetch(a_, 0, 3));
  EXPECT_NEAR(after[0] - before[0], 0.7 * (1 + 0.01) / 2, 1e-4);
  EXPECT_EQ(run_.engine().ListQuarantine(false).contributions_size(), 0);
  ASSERT_OK(run_.Start(config));
  const v1::TokenLedger ledger =
      run_.engine().ListFragments().fragments(0).ledger();
  EXPECT_EQ(ledger.merged(), 6000);
  EXPECT_EQ(ledger.quarantined(), 0);
  // No later process of the island may have this training in a checkpoint.
  v1::FetchUpdateRequest request;
  ASSERT_OK_AND_ASSIGN(*request.mutable_identity(), run_.Join("b", 2));
  for (const uint64_t from_version : {1, 2}) {
    request.set_from_version(from_version);
    ASSERT_OK_AND_ASSIGN(const OpenedUpdate update,
                         run_.engine().OpenUpdate(request));
    EXPECT_EQ(update.response.other_tokens() > 0, from_version == 1);
  }
}

TEST_F(EngineFaultsTest, QuarantinedBytesThatAreDamagedAreNotMerged) {
  StartRun(TestRunConfig());
  ASSERT_THAT(run_.Contribute(run_.MakeContribution(a_, 0, 0, anchor_,
                                                    Shifted(anchor_, 1000))),
              IsOutOfRange());
  const std::string file = run_.state_dir() + "/quarantine/1";
  ASSERT_OK_AND_ASSIGN(std::string bytes, ReadFile(file));
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_OK(WriteFileAtomically(file, {absl::string_view(bytes)}));
  EXPECT_THAT(run_.engine().Admit(1),
              IsFailedPrecondition("the file is damaged"));
  ASSERT_OK(Contribute(b_));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_EQ(run_.engine().GetRun().ledger().merged(), 1000);
  ASSERT_OK(run_.engine().Drop(1));
  // The bytes are no longer needed.
  EXPECT_THAT(ReadFile(file), IsNotFound());
}

// The round closes without an island that is in the middle of an upload. The
// next round needs the upload's memory.
TEST_F(EngineFaultsTest, AnUploadThatComesTooLateGivesItsMemoryBack) {
  StartRun(TestRunConfig("membership { grace_seconds: 0 }"));
  const TestContribution late =
      run_.MakeContribution(b_, 0, 0, anchor_, Shifted(anchor_, 0.02f));
  ASSERT_OK(run_.engine().Offer(late.header));
  ASSERT_OK(
      run_.engine().Append(KeyOf(late.header), CutChunk(late.bytes, 0, 100)));
  ASSERT_OK(Contribute(a_));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_TRUE(run_.Await([&] {
    const absl::Status status =
        run_.engine()
            .Append(KeyOf(late.header), CutChunk(late.bytes, 0, 100))
            .status();
    return absl::StrContains(status.message(), "no upload of island b");
  }));
}

TEST_F(EngineFaultsTest, ASilentIslandIsEvictedAndTheRoundContinues) {
  StartRun(TestRunConfig());
  ASSERT_OK(Contribute(a_));
  run_.AdvanceSeconds(9);
  ASSERT_OK(run_.Heartbeat(a_));
  run_.AdvanceSeconds(2);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_THAT(Contribute(b_), IsAborted());
  // No answer may reveal an eviction that a restart would not know.
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_OK(run_.Heartbeat(a_));
  EXPECT_THAT(run_.Heartbeat(b_), IsAborted());
}

// The tick thread may be anywhere when the process is stopped.
TEST_F(EngineFaultsTest, AStopOfTheProcessEndsNoLease) {
  StartRun(TestRunConfig());
  for (int stops = 1; stops <= 10; ++stops) {
    run_.StopAtNextLook(60);
    EXPECT_OK(run_.Heartbeat(a_)) << stops;
  }
  // No heartbeat of b was heard, but the stops are no part of its lease.
  EXPECT_OK(run_.Heartbeat(b_));
}

// A coordinator learns that it was replaced while its merge thread, held up by
// the test, has an outer step to do.
TEST_F(EngineFaultsTest, AnOuterStepIsNotCommittedOnceItWasReplaced) {
  StartRun(TestRunConfig());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> other, run_.Fetch(a_, 1, 0));
  absl::Notification merged;
  absl::Notification go_on;
  const uint64_t listener = run_.engine().news().Add([&] {
    if (run_.Head(0).version() == 0 || merged.HasBeenNotified()) return;
    merged.Notify();
    go_on.WaitForNotification();
  });
  for (const v1::IslandIdentity& island : {a_, b_}) {
    ASSERT_OK(Contribute(island));
  }
  merged.WaitForNotification();
  for (const v1::IslandIdentity& island : {a_, b_}) {
    ASSERT_OK(run_.Contribute(
        run_.MakeContribution(island, 1, 0, other, Shifted(other, 0.01f))));
  }
  v1::IslandIdentity knows_better = a_;
  knows_better.set_epoch(a_.epoch() + 1);
  EXPECT_THAT(run_.Heartbeat(knows_better), IsUnavailable());
  go_on.Notify();
  const std::filesystem::path record =
      run_.state_dir() + "/merges/merge-0001-v00000001.safetensors";
  ASSERT_TRUE(run_.Await([&] { return std::filesystem::exists(record); }));
  run_.engine().news().Remove(listener);
  EXPECT_EQ(run_.engine().run_state(), v1::SUSPENDED);
  EXPECT_EQ(run_.engine().GetRun().epoch(), a_.epoch());
  EXPECT_THAT(run_.engine().Pause({}), IsUnavailable("was replaced"));
  // The restart waits for the outer step.
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.Head(0).version(), 1);
  EXPECT_EQ(run_.Head(1).version(), 0);
}

TEST_F(EngineFaultsTest, AFailedCommitSuspendsTheRunUntilTheDiskIsBack) {
  StartRun(TestRunConfig());
  ASSERT_OK(run_.RefuseInserts("commits"));
  ASSERT_OK(Contribute(a_));
  ASSERT_OK(Contribute(b_));
  ASSERT_TRUE(
      run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
  EXPECT_THAT(run_.engine().GetRun().message(), HasSubstr("no space left"));
  EXPECT_EQ(run_.Head(0).version(), 0);
  EXPECT_THAT(run_.Fetch(a_, 0, 0), IsOkAndHolds(anchor_));

  ASSERT_OK(run_.AllowInserts());
  run_.AdvanceSeconds(5);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_EQ(run_.engine().run_state(), v1::RUNNING);
}

TEST_F(EngineFaultsTest,
       WhileTheDiskIsBrokenRefusalsThatChangeNothingAreHeard) {
  StartRun(TestRunConfig());
  ASSERT_OK(run_.RefuseInserts("events"));
  // There is nothing to write, so the answer is the refusal.
  v1::IslandIdentity stranger = a_;
  stranger.set_incarnation(9);
  EXPECT_THAT(run_.Heartbeat(stranger), IsAborted());
  EXPECT_THAT(run_.Leave(stranger), IsAborted());
  EXPECT_THAT(run_.Join("a", 2), IsResourceExhausted());
  EXPECT_OK(run_.Heartbeat(a_));
  // A refusal that ends a membership is a change that a restart would not know.
  std::vector<float> diverged = anchor_;
  diverged[3] = NAN;
  EXPECT_THAT(
      run_.Contribute(run_.MakeContribution(b_, 0, 0, anchor_, diverged)),
      IsUnavailable());
  EXPECT_THAT(run_.engine().Pause({}),
              IsUnavailable("is in effect, but not yet recorded",
                            "cannot write its commit log"));
  // Until that is written, no call reports success.
  EXPECT_THAT(run_.Heartbeat(a_), IsUnavailable());
  ASSERT_OK(run_.AllowInserts());
  EXPECT_OK(run_.Heartbeat(a_));
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.engine().run_state(), v1::PAUSED);
  EXPECT_THAT(run_.Heartbeat(b_), IsOutOfRange());
}

TEST_F(EngineFaultsTest, ARoundThatClosesWhileTheLogFailsIsMergedAllTheSame) {
  StartRun(TestRunConfig());
  ASSERT_OK(Contribute(a_));
  ASSERT_OK(run_.RefuseInserts("members"));
  // The departure closes the round, but cannot be written.
  EXPECT_THAT(run_.Leave(b_), testing::Not(IsOk()));
  EXPECT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK(run_.AllowInserts());
  EXPECT_OK(run_.Heartbeat(a_));
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_THAT(run_.Heartbeat(b_), IsAborted());
}

// The commit of a version also admits what was merged from the quarantine, even
// if the process ends before it writes anything else.
TEST_F(EngineFaultsTest, AnAdmittedContributionIsNotedWithItsCommit) {
  StartRun(TestRunConfig());
  ASSERT_FALSE(run_.Contribute(run_.MakeContribution(b_, 0, 0, anchor_,
                                                     Shifted(anchor_, 1000)))
                   .ok());
  ASSERT_OK(run_.engine().Admit(1));
  ASSERT_OK(run_.RefuseInserts("members"));
  ASSERT_OK(Contribute(a_));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  run_.Stop();
  ASSERT_OK(run_.AllowInserts());
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.engine().ListQuarantine(false).contributions_size(), 0);
  const v1::TokenLedger ledger = run_.engine().GetRun().ledger();
  EXPECT_EQ(ledger.merged(), 2000);
  EXPECT_EQ(ledger.quarantined(), 0);
}

}  // namespace
}  // namespace causeway
