// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests an engine that does not know whether a write to its commit log
// succeeded.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine.h"
#include "server/storage/testing/failing_disk.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;

class EngineOutcomeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(run_.Start(config_));
    ASSERT_OK_AND_ASSIGN(a_, run_.Join("a"));
    ASSERT_OK_AND_ASSIGN(b_, run_.Join("b"));
  }
  ~EngineOutcomeTest() override { disk_.Repair(); }

  absl::Status Contribute(const v1::IslandIdentity& island, uint64_t version) {
    const absl::StatusOr<std::vector<float>> anchor =
        run_.Fetch(island, 0, version);
    if (!anchor.ok()) return anchor.status();
    return run_
        .Contribute(run_.MakeContribution(island, 0, version, *anchor,
                                          Shifted(*anchor, 0.01f)))
        .status();
  }

  // Makes the outcome of the next write unknown. SQLite finds the write if its
  // log is still there when it reopens the database. If it can sync when it
  // closes the database, it ends that log without the write.
  void DoubtAndFind() { FailSyncs(2); }
  void DoubtAndLose() { FailSyncs(1); }
  void FailSyncs(int count) {
    disk_.failing_syncs = count;
    disk_.sync_error = EIO;
  }

  std::vector<v1::Event> Events(const std::string& kind) {
    std::vector<v1::Event> found;
    const auto events = run_.engine().log().EventsAfter(0, 1000);
    EXPECT_OK(events);
    for (const v1::Event& event : events.value()) {
      if (event.kind() == kind) found.push_back(event);
    }
    return found;
  }
  // Waits until doubt number `count` is resolved, and returns the outcome. The
  // clock moves, because the disk is tried again only after a pause.
  std::string AwaitReconciled(size_t count) {
    run_.AdvanceSeconds(5);
    EXPECT_TRUE(
        run_.Await([&] { return Events("log_reconciled").size() >= count; }));
    return Events("log_reconciled").back().text();
  }
  // Moves the clock, because the pause before a retry begins when the merge
  // thread learns of the failure.
  bool AwaitRetried(uint64_t version) {
    return run_.Await([&] {
      run_.AdvanceSeconds(1);
      return run_.Head(0).version() >= version;
    });
  }
  void CommitAndFind(uint64_t version, size_t doubt) {
    ASSERT_OK(Contribute(a_, version));
    DoubtAndFind();
    ASSERT_OK(Contribute(b_, version));
    ASSERT_THAT(AwaitReconciled(doubt), HasSubstr("is there"));
    // The version counts at once: nothing is made again.
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  }
  void CommitAndLose(uint64_t version, size_t doubt) {
    ASSERT_OK(Contribute(a_, version));
    DoubtAndLose();
    ASSERT_OK(Contribute(b_, version));
    ASSERT_TRUE(
        run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
    ASSERT_THAT(AwaitReconciled(doubt), HasSubstr("is not there"));
    EXPECT_EQ(run_.Head(0).version(), version);
    EXPECT_THAT(run_.Fetch(a_, 0, version + 1), IsNotFound());
    ASSERT_TRUE(AwaitRetried(version + 1));
  }
  // Expects that each contribution was merged once, and that a restart finds
  // it.
  void ExpectMerged(uint64_t version) {
    EXPECT_EQ(run_.engine().run_state(), v1::RUNNING);
    EXPECT_EQ(run_.engine().ListFragments().fragments(0).ledger().merged(),
              version * 2000);
    const v1::FragmentHead head = run_.Head(0);
    EXPECT_EQ(head.version(), version);
    EXPECT_OK(run_.Fetch(a_, 0, version));
    ASSERT_OK(run_.Start(config_));
    EXPECT_EQ(run_.Head(0).version(), version);
    EXPECT_EQ(run_.Head(0).digest(), head.digest());
  }

  const v1::RunConfig config_ = TestRunConfig(
      "training { total_steps: 80 } membership { max_islands: 4 "
      "lease_seconds: 3600 }");
  EngineDriver run_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
  FailingDisk& disk_ = TheFailingDisk();
};

TEST_F(EngineOutcomeTest, ACommitThatIsFoundIsNotMadeAgain) {
  CommitAndFind(0, 1);
  ExpectMerged(1);
  ASSERT_OK(Contribute(a_, 1));
  ASSERT_OK(Contribute(b_, 1));
  EXPECT_TRUE(run_.AwaitVersion(0, 2));
}

TEST_F(EngineOutcomeTest, ACommitThatIsNotFoundIsMadeAgain) {
  CommitAndLose(0, 1);
  ExpectMerged(1);
}

TEST_F(EngineOutcomeTest, NothingElseIsCommittedMeanwhile) {
  ASSERT_OK(Contribute(a_, 0));
  disk_.sync_error = EIO;
  ASSERT_OK(Contribute(b_, 0));
  ASSERT_TRUE(
      run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
  EXPECT_THAT(run_.engine().GetRun().message(), HasSubstr("outcome unknown"));
  EXPECT_THAT(run_.Join("c").status(), IsUnavailable());
  disk_.Repair();
  AwaitReconciled(1);
  ASSERT_TRUE(AwaitRetried(1));
  EXPECT_OK(run_.Join("c"));
  EXPECT_EQ(Events("island_joined").size(), 3);
  ExpectMerged(1);
}

// No island can be heard meanwhile.
TEST_F(EngineOutcomeTest, ADiskThatStandsStillEndsNoLease) {
  disk_.stands_still = true;
  std::thread operation(
      [&] { EXPECT_OK(run_.engine().Pause(v1::PauseRunRequest(), "me")); });
  while (disk_.waiting == 0) std::this_thread::yield();
  run_.AdvanceSeconds(7200);
  EXPECT_THAT(run_.engine().CheckLogMoves(),
              IsUnavailable("a write has taken 7200", run_.state_dir()));
  disk_.Repair();
  operation.join();
  EXPECT_OK(run_.engine().CheckLogMoves());
  EXPECT_OK(run_.Heartbeat(a_));
  // The other island has only the rest of its lease.
  run_.AdvanceSeconds(3500);
  EXPECT_OK(run_.Heartbeat(a_));
  EXPECT_TRUE(Events("island_evicted").empty());
  run_.AdvanceSeconds(200);
  EXPECT_TRUE(run_.Await([&] { return Events("island_evicted").size() == 1; }));
  EXPECT_THAT(run_.Heartbeat(b_), IsAborted());
  EXPECT_OK(run_.Heartbeat(a_));
}

TEST_F(EngineOutcomeTest, ACommitThatTakesLongHoldsUpNoHeartbeat) {
  ASSERT_OK(Contribute(a_, 0));
  disk_.path = "run.sqlite3-wal";
  disk_.stands_still = true;
  ASSERT_OK(Contribute(b_, 0));
  while (disk_.waiting == 0) std::this_thread::yield();
  absl::Notification answered;
  std::thread heartbeats([&] {
    // Meanwhile the engine's clock ticks.
    for (int i = 0; i < 5; ++i) {
      absl::SleepFor(absl::Milliseconds(100));
      EXPECT_OK(run_.Heartbeat(a_));
    }
    answered.Notify();
  });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  run_.AdvanceSeconds(5);
  EXPECT_THAT(run_.engine().CheckLogMoves(),
              IsUnavailable("a write has taken 5"));
  disk_.Repair();
  heartbeats.join();
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_OK(run_.engine().CheckLogMoves());
  ExpectMerged(1);
}

// The outcome of one doubtful write does not determine the next.
TEST_F(EngineOutcomeTest, EachDoubtIsResolvedByItself) {
  // Returns the outcome of the doubt number `doubt`, about a membership.
  const auto join_in_doubt = [&](const std::string& island, size_t doubt) {
    EXPECT_THAT(run_.Join(island).status(),
                IsUnavailable("cannot write its commit log"));
    const std::string outcome = AwaitReconciled(doubt);
    const auto identity = run_.Join(island);
    EXPECT_OK(identity) << "the same process asks again";
    // The round continues without it.
    EXPECT_OK(run_.Leave(identity.value()));
    return outcome;
  };
  CommitAndFind(0, 1);
  DoubtAndLose();
  EXPECT_THAT(join_in_doubt("c", 2), HasSubstr("is not there"));
  DoubtAndFind();
  EXPECT_THAT(join_in_doubt("d", 3), HasSubstr("is there"));
  CommitAndLose(1, 4);

  // Every event is reported once, under its own number.
  const std::vector<v1::Event> joined = Events("island_joined");
  ASSERT_EQ(joined.size(), 4);
  for (size_t i = 0; i < joined.size(); ++i) {
    EXPECT_EQ(joined[i].island_id(), std::string(1, "abcd"[i]));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> all,
                       run_.engine().log().EventsAfter(0, 1000));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].id(), i + 1);
  ExpectMerged(2);
}

// Islands learn of the doubt from the engine's news, not from a clock.
TEST_F(EngineOutcomeTest, ListenersHearOfADoubt) {
  std::atomic<bool> heard = false;
  const uint64_t listener = run_.engine().news().Add([&] {
    if (run_.engine().run_state() == v1::SUSPENDED) heard = true;
  });
  ASSERT_OK(Contribute(a_, 0));
  disk_.sync_error = EIO;
  ASSERT_OK(Contribute(b_, 0));
  EXPECT_TRUE(run_.Await([&] { return heard.load(); }));
  run_.engine().news().Remove(listener);
  // A coordinator that is told to stop does not wait for the disk.
  run_.Stop();
  disk_.Repair();
  ASSERT_OK(run_.Start(config_));
  EXPECT_LE(run_.Head(0).version(), 1);
}

}  // namespace
}  // namespace causeway
