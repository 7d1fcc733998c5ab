// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what an engine reports about the run and its islands.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

class EngineStatusTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(run_.Start(TestRunConfig())); }

  // Lets an island join and report this loss and speed.
  v1::IslandIdentity Join(const std::string& island, double loss,
                          double tokens_per_second) {
    const v1::IslandIdentity identity = run_.Join(island).value();
    v1::SessionRequest request;
    *request.mutable_identity() = identity;
    request.mutable_progress()->set_loss(loss);
    request.mutable_progress()->set_tokens_per_second(tokens_per_second);
    EXPECT_OK(run_.engine().Heartbeat(request));
    return identity;
  }

  // Contributes to a fragment's open round.
  absl::Status Contribute(const v1::IslandIdentity& identity, uint32_t fragment,
                          uint64_t version) {
    ASSIGN_OR_RETURN(const std::vector<float> anchor,
                     run_.Fetch(identity, fragment, version));
    return run_
        .Contribute(run_.MakeContribution(identity, fragment, version, anchor,
                                          Shifted(anchor, 0.01f)))
        .status();
  }

  EngineDriver run_;
};

TEST_F(EngineStatusTest, TheLossIsTheMeanOfThoseWhoReportOne) {
  EXPECT_EQ(run_.engine().GetRun().loss(), 0);
  Join("a", 2, 100);
  Join("b", 0, 0);
  EXPECT_EQ(run_.engine().GetRun().loss(), 2);
  Join("c", 3, 50);
  EXPECT_EQ(run_.engine().GetRun().loss(), 2.5);
  EXPECT_EQ(run_.engine().GetRun().tokens_per_second(), 150);
}

TEST_F(EngineStatusTest, ImpossibleClaimsDoNotCount) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Join("a", 2, 100);
  Join("b", std::nan(""), kInfinity);
  Join("c", 1e300, std::nan(""));
  EXPECT_EQ(run_.engine().GetRun().live_islands(), 3);
  EXPECT_EQ(run_.engine().GetRun().loss(), 2);
  EXPECT_EQ(run_.engine().GetRun().tokens_per_second(), 100);
}

TEST_F(EngineStatusTest, AnIslandThatTrainsEveryStepHasAllOfThem) {
  Join("a", 2, 100);
  EXPECT_EQ(run_.engine().ListIslands(false).islands(0).inner_steps_per_round(),
            10);
}

TEST_F(EngineStatusTest, AWaitSaysForHowLongAndForWhom) {
  v1::SessionRequest request;
  *request.mutable_identity() = Join("a", 0, 0);
  const v1::IslandIdentity b = Join("b", 0, 0);
  ASSERT_OK(Contribute(request.identity(), 0, 0));
  v1::IslandProgress& progress = *request.mutable_progress();
  progress.set_activity("waiting");
  const auto shown = [&] {
    return run_.engine().ListIslands(true).islands(0).progress();
  };
  const auto activity = [&] {
    EXPECT_OK(run_.engine().Heartbeat(request));
    run_.AdvanceSeconds(1);
    return shown().activity();
  };
  EXPECT_EQ(activity(), "waiting") << "as older islands report it";
  v1::Wait& wait = *progress.mutable_wait();
  wait.set_reason(v1::Wait::UPDATE_DUE);
  wait.set_seconds(2.5);
  EXPECT_EQ(activity(), "waiting (for 3s)");
  wait.set_fragment(0);
  EXPECT_EQ(activity(), "waiting (for 3s; awaited: b)");
  Join("c", 0, 0);
  ASSERT_OK(Contribute(b, 0, 0));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_EQ(activity(), "waiting (for 3s; the update is on its way)");
  // No such fragment.
  wait.set_fragment(99);
  EXPECT_EQ(activity(), "waiting (for 3s)");
  ASSERT_OK(run_.Leave(request.identity()));
  EXPECT_FALSE(shown().has_wait());
}

TEST_F(EngineStatusTest, ARunKnowsWhomItMissesAndForHowLong) {
  v1::RunStatus status = run_.engine().GetRun();
  EXPECT_EQ(status.islands_needed(), 2);
  EXPECT_TRUE(status.has_missing_since());
  ASSERT_OK(run_.engine().Pause({}));
  status = run_.engine().GetRun();
  ASSERT_EQ(status.attention_size(), 2);
  EXPECT_EQ(status.attention(0).severity(), v1::WARNING);
  EXPECT_EQ(status.attention(0).text(), "waiting for 2 of 2 islands to begin");
  ASSERT_OK(run_.engine().Resume());
  const v1::IslandIdentity a = Join("a", 0, 0);
  const v1::IslandIdentity b = Join("b", 0, 0);
  status = run_.engine().GetRun();
  EXPECT_FALSE(status.has_missing_since());
  EXPECT_EQ(status.attention_size(), 0);
  EXPECT_FALSE(status.has_last_round_at());
  // The second round shows the pace.
  for (const uint64_t version : {0, 1}) {
    run_.AdvanceSeconds(2);
    for (const v1::IslandIdentity& island : {a, b}) {
      ASSERT_OK(run_.Heartbeat(island));
      ASSERT_OK(Contribute(island, 0, version));
    }
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
    status = run_.engine().GetRun();
  }
  EXPECT_TRUE(status.has_last_round_at());
  EXPECT_GT(status.seconds_left(), 0);
  ASSERT_OK(run_.Leave(a));
  run_.AdvanceSeconds(1);
  ASSERT_OK(run_.Leave(b));
  status = run_.engine().GetRun();
  EXPECT_EQ(status.islands_needed(), 1);
  EXPECT_FALSE(status.has_seconds_left());
  ASSERT_EQ(status.attention_size(), 1);
  EXPECT_EQ(status.attention(0).text(),
            "waiting for 1 of 1 island; the last to leave was b (left)");
  const auto missing = status.missing_since();
  ASSERT_OK(run_.Start(TestRunConfig()));
  status = run_.engine().GetRun();
  ASSERT_EQ(status.attention_size(), 1);
  EXPECT_LE(status.missing_since().seconds(), missing.seconds());
}

TEST_F(EngineStatusTest, IslandsThatLeftAreListedOnDemand) {
  const v1::IslandIdentity a = Join("a", 2, 100);
  Join("b", 3, 50);
  ASSERT_OK(run_.Leave(a));
  EXPECT_EQ(run_.engine().GetRun().live_islands(), 1);
  EXPECT_EQ(run_.engine().GetRun().loss(), 3);
  EXPECT_EQ(run_.engine().GetRun().tokens_per_second(), 50);
  const v1::ListIslandsResponse live = run_.engine().ListIslands(false);
  ASSERT_EQ(live.islands_size(), 1);
  EXPECT_EQ(live.islands(0).island_id(), "b");
  const v1::ListIslandsResponse all = run_.engine().ListIslands(true);
  ASSERT_EQ(all.islands_size(), 2);
  EXPECT_EQ(all.islands(0).state(), v1::IslandStatus::LEFT);
  EXPECT_EQ(all.islands(0).reason(), "left");
  EXPECT_EQ(all.islands(1).state(), v1::IslandStatus::LIVE);
}

TEST_F(EngineStatusTest, BytesAddUp) {
  run_.engine().bytes_sent() += 10;
  run_.engine().bytes_sent() += 20;
  EXPECT_EQ(run_.engine().GetRun().bytes_sent(), 30);
  Join("a", 0, 0);
  const v1::IslandIdentity b = Join("b", 0, 0);
  uint64_t received = 0;
  for (const uint32_t fragment : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(b, fragment, 0));
    const TestContribution contribution =
        run_.MakeContribution(b, fragment, 0, anchor, Shifted(anchor, 0.01f));
    ASSERT_OK(run_.Contribute(contribution));
    received += contribution.bytes.size();
  }
  EXPECT_EQ(run_.engine().GetRun().bytes_received(), received);
}

TEST_F(EngineStatusTest, ATokenOfAnIslandCountsOnceForAllFragments) {
  const v1::IslandIdentity a = Join("a", 0, 0);
  ASSERT_OK(run_.Leave(Join("b", 0, 0)));
  for (const uint32_t fragment : {0, 1}) {
    ASSERT_OK(Contribute(a, fragment, 0));
    ASSERT_TRUE(run_.AwaitVersion(fragment, 1));
  }
  const v1::IslandStatus island = run_.engine().ListIslands(false).islands(0);
  EXPECT_EQ(island.contributions_merged(), 2);
  EXPECT_EQ(island.tokens_merged(), 1000);
  EXPECT_EQ(run_.engine().GetRun().tokens_merged(), 1000);
}

TEST_F(EngineStatusTest, TheTimeOfAnOuterStepIsTheMeanOfAll) {
  const v1::IslandIdentity a = Join("a", 0, 0);
  ASSERT_OK(run_.Leave(Join("b", 0, 0)));
  EXPECT_EQ(run_.engine().GetRun().outer_step_seconds(), 0);
  // Every outer step looks at the clock equally often.
  run_.AdvanceAtEachLook();
  ASSERT_OK(Contribute(a, 0, 0));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  const double first = run_.engine().GetRun().outer_step_seconds();
  // It looks when it begins, begins to merge, begins the commit and its write,
  // ends the commit, and ends.
  EXPECT_DOUBLE_EQ(first, 0.005);
  ASSERT_OK(Contribute(a, 0, 1));
  ASSERT_TRUE(run_.AwaitVersion(0, 2));
  const v1::RunStatus status = run_.engine().GetRun();
  EXPECT_DOUBLE_EQ(status.outer_step_seconds(), first);
  EXPECT_DOUBLE_EQ(status.outer_steps().sum_seconds(), 2 * first);
  EXPECT_DOUBLE_EQ(status.commits().sum_seconds(), 0.004);
}

TEST_F(EngineStatusTest, TellsTheRoomForContributionsAndVersions) {
  const v1::StorageUse storage = run_.engine().GetRun().storage();
  EXPECT_EQ(storage.staging_bytes(), 0);
  EXPECT_GT(storage.staging_limit_bytes(), 0);
  EXPECT_GT(storage.disk_free_bytes(), 0);
  EXPECT_GE(storage.disk_total_bytes(), storage.disk_free_bytes());
}

TEST_F(EngineStatusTest, TheHistorySurvivesARestart) {
  const v1::IslandIdentity a = Join("a", 0, 0);
  const v1::IslandIdentity b = Join("b", 0, 0);
  v1::SessionRequest report;
  *report.mutable_identity() = a;
  report.mutable_progress()->set_tokens(100);
  report.mutable_progress()->set_loss(2.5);
  report.mutable_progress()->set_tokens_per_second(50);
  ASSERT_OK(run_.engine().Heartbeat(report));
  for (const uint64_t version : {0, 1}) {
    for (const uint32_t fragment : {0, 1}) {
      run_.AdvanceSeconds(10);
      ASSERT_OK(Contribute(a, fragment, version));
      ASSERT_OK(Contribute(b, fragment, version));
      ASSERT_TRUE(run_.AwaitVersion(fragment, version + 1));
      run_.AdvanceSeconds(1);
      run_.engine().NoteDelivered(
          run_.engine().ListFragments().fragments(fragment).head());
    }
  }
  const v1::FragmentStatus live = run_.engine().ListFragments().fragments(1);
  EXPECT_EQ(live.last_round().version(), 2);
  EXPECT_EQ(live.last_round().delivered_at().seconds(),
            live.last_round().sent_at().seconds() + 1);
  EXPECT_FALSE(live.has_sent_at());
  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(const v1::GetHistoryResponse history,
                       run_.engine().GetHistory({}));
  ASSERT_EQ(history.training_size(), 2);
  EXPECT_EQ(history.training(0).loss(), 2.5);
  EXPECT_EQ(history.training(1).participation().merged(), 8);
  EXPECT_EQ(history.training(1).loss(), 0) << "no report since the first";
  EXPECT_EQ(history.training(1).tokens_per_second(), 50);
  ASSERT_EQ(history.training(1).rounds_size(), 2);
  const v1::RoundTimes& round = history.training(1).rounds(1);
  EXPECT_EQ(round.fragment(), 1);
  EXPECT_EQ(round.delivered_at().seconds(), round.sent_at().seconds() + 1);
  v1::GetHistoryRequest later;
  later.set_training_after(1);
  ASSERT_OK_AND_ASSIGN(const v1::GetHistoryResponse rest,
                       run_.engine().GetHistory(later));
  ASSERT_EQ(rest.training_size(), 1);
  EXPECT_EQ(rest.training(0).version(), 2);
  EXPECT_FALSE(run_.engine().ListFragments().fragments(0).has_last_round());
}

}  // namespace
}  // namespace causeway
