// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An engine whose islands or disk misbehave.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine.h"
#include "server/engine_driver.h"
#include "server/sqlite.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr auto kAccepted = v1::ContributeResponse::ACCEPTED;

class EngineFaultsTest : public testing::Test {
 protected:
  // Two islands of a running run, and fragment 0 as both know it.
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

  // Lets every insertion into a table of the commit log fail, as a full disk
  // does, until AllowInserts().
  void RefuseInserts(const std::string& table) {
    Execute("CREATE TRIGGER refuse BEFORE INSERT ON " + table +
            " BEGIN SELECT RAISE(ABORT, 'no space left'); END");
  }
  void AllowInserts() { Execute("DROP TRIGGER refuse"); }

  EngineDriver run_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
  std::vector<float> anchor_;

 private:
  void Execute(const std::string& sql) {
    ASSERT_OK_AND_ASSIGN(
        SqliteDatabase database,
        SqliteDatabase::Open(run_.state_dir() + "/run.sqlite3",
                             SqliteDatabase::Mode::kReadWriteCreate));
    ASSERT_OK(database.Execute(sql));
  }
};

TEST_F(EngineFaultsTest, ValuesThatAreNotFiniteAreRefused) {
  StartRun(TestRunConfig());
  std::vector<float> diverged = anchor_;
  diverged[3] = NAN;
  EXPECT_THAT(
      run_.Contribute(run_.MakeContribution(a_, 0, 0, anchor_, diverged)),
      StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(Contribute(b_));
  EXPECT_EQ(run_.Head(0).version(), 0) << "the round still waits for a";
  // Its next, sound one is taken.
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse response, Contribute(a_));
  EXPECT_EQ(response.verdict(), kAccepted);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> merged, run_.Fetch(a_, 0, 1));
  for (const float value : merged) ASSERT_TRUE(std::isfinite(value));
}

TEST_F(EngineFaultsTest, ASilentIslandIsEvictedAndTheRoundGoesOn) {
  StartRun(TestRunConfig());
  ASSERT_OK(Contribute(a_));
  run_.AdvanceSeconds(9);
  ASSERT_OK(run_.Heartbeat(a_));
  run_.AdvanceSeconds(2);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_THAT(Contribute(b_), StatusIs(absl::StatusCode::kAborted));
  // Nobody may hear of an eviction that a restart would not know.
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_OK(run_.Heartbeat(a_));
  EXPECT_THAT(run_.Heartbeat(b_), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(EngineFaultsTest, UploadsToAllFragmentsFitIntoMemoryTogether) {
  // Else each island could hold the memory that the other needs, for good.
  StartRun(TestRunConfig("membership { max_islands: 2 quorum: 2 }"));
  for (const v1::IslandIdentity& island : {a_, b_}) {
    for (const uint32_t fragment : island.island_id() == "a"
                                       ? std::vector<uint32_t>{0, 1}
                                       : std::vector<uint32_t>{1, 0}) {
      ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                           run_.Fetch(island, fragment, 0));
      ASSERT_OK(run_.Contribute(run_.MakeContribution(
          island, fragment, 0, anchor, Shifted(anchor, 0.01f))));
    }
  }
  EXPECT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_TRUE(run_.AwaitVersion(1, 1));
}

TEST_F(EngineFaultsTest, AFailedCommitSuspendsTheRunUntilTheDiskIsBack) {
  StartRun(TestRunConfig());
  RefuseInserts("commits");
  ASSERT_OK(Contribute(a_));
  ASSERT_OK(Contribute(b_));
  ASSERT_TRUE(
      run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
  EXPECT_THAT(run_.engine().GetRun().message(), HasSubstr("no space left"));
  EXPECT_EQ(run_.Head(0).version(), 0);
  EXPECT_THAT(run_.Fetch(a_, 0, 0), IsOkAndHolds(anchor_));

  AllowInserts();
  run_.AdvanceSeconds(5);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_EQ(run_.engine().run_state(), v1::RUNNING);
}

TEST_F(EngineFaultsTest, ARoundThatClosesWhileTheLogFailsIsMergedAllTheSame) {
  StartRun(TestRunConfig());
  ASSERT_OK(Contribute(a_));
  RefuseInserts("events");
  // The departure closes the round, but cannot be written down.
  EXPECT_THAT(run_.Leave(b_), testing::Not(IsOk()));
  EXPECT_TRUE(run_.AwaitVersion(0, 1));
  AllowInserts();
  EXPECT_OK(run_.Heartbeat(a_));
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_THAT(run_.Heartbeat(b_), StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace causeway
