// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a coordinator that learns that another one has taken the run over.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const auto kReplaced =
    IsUnavailable("of epoch 1,", "replaced by one of epoch 5", "says so");

v1::JoinRequest RequestOf(const std::string& island, const std::string& run_id,
                          uint64_t epoch) {
  v1::JoinRequest request;
  request.set_island_id(island);
  request.set_instance_id(7);
  request.set_expected_run_id(run_id);
  request.set_epoch(epoch);
  return request;
}

TEST(CoordinatorEpochsTest, TellsItsEpoch) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  EXPECT_EQ(a.epoch(), 1);
  EXPECT_EQ(run.core().View(a).epoch(), 1);
}

TEST(CoordinatorEpochsTest, AnyCallOfAnIslandThatKnowsBetterEndsItsTerm) {
  using Call = std::function<absl::Status(CoordinatorDriver&,
                                          const v1::IslandIdentity&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"Join",
       [](auto& run, const auto& island) {
         return run.core()
             .Join(RequestOf("b", island.run_id(), island.epoch()), run.now(),
                   run.effects())
             .status();
       }},
      {"Heartbeat",
       [](auto& run, const auto& island) { return run.Heartbeat(island); }},
      {"Offer",
       [](auto& run, const auto& island) {
         return run.Offer(Contribution(island, 0)).status();
       }},
      {"Complete",
       [](auto& run, const auto& island) {
         return run.Complete(Contribution(island, 0)).status();
       }},
      {"fetch",
       [](auto& run, const auto& island) { return run.core().Check(island); }},
      {"Leave",
       [](auto& run, const auto& island) { return run.Leave(island); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    CoordinatorDriver run({});
    const v1::IslandIdentity a = run.Join("a");
    v1::IslandIdentity knows_better = a;
    knows_better.set_epoch(5);
    // The other coordinator may have given the island another incarnation.
    knows_better.set_incarnation(a.incarnation() + 3);
    EXPECT_THAT(call(run, knows_better), kReplaced);
    EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
    EXPECT_THAT(run.core().View(a).message(), HasSubstr("epoch 5"));
    // It serves no island, and decides nothing.
    EXPECT_THAT(call(run, a), kReplaced);
    run.Advance(2 * CoordinatorDriver::kLease);
    run.Tick();
    run.Tick();
    EXPECT_EQ(run.CountEvents("coordinator_replaced"), 1);
    EXPECT_EQ(run.CountEvents("island_evicted"), 0);
  }
}

TEST(CoordinatorEpochsTest, AnEpochOfAnotherRunOrALowerOneChangesNothing) {
  CoordinatorDriver run({});
  v1::IslandIdentity a = run.Join("a");
  for (const uint64_t epoch : {0, 1}) {
    a.set_epoch(epoch);
    EXPECT_OK(run.Heartbeat(a));
    run.core().StandDown(epoch, run.effects());
  }
  v1::IslandIdentity foreign = a;
  foreign.set_run_id("run-2");
  foreign.set_epoch(5);
  EXPECT_THAT(run.Heartbeat(foreign), IsFailedPrecondition());
  for (const char* const run_id : {"run-2", ""}) {
    run.core()
        .Join(RequestOf("b", run_id, 5), run.now(), run.effects())
        .status()
        .IgnoreError();
  }
  run.Tick();
  EXPECT_OK(run.core().CheckInOffice());
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  EXPECT_EQ(run.CountEvents("coordinator_replaced"), 0);
}

// All of an island's transfers go to the coordinator of its control stream.
TEST(CoordinatorEpochsTest, TransfersWaitForTheControlStream) {
  CoordinatorDriver run({.epoch = 2});
  const v1::IslandIdentity a = run.Join("a");
  v1::IslandIdentity behind = a;
  behind.set_epoch(1);
  const auto refused = IsUnavailable("knows epoch 1 only");
  EXPECT_THAT(run.Offer(Contribution(behind, 0)), refused);
  EXPECT_THAT(run.Complete(Contribution(behind, 0)), refused);
  EXPECT_THAT(run.core().Check(behind), refused);
  EXPECT_OK(run.Heartbeat(behind));
  EXPECT_EQ(run.core().View(behind).epoch(), 2);
  EXPECT_OK(run.core().Check(a));
  v1::IslandIdentity of_old_program = a;
  of_old_program.clear_epoch();
  EXPECT_OK(run.core().Check(of_old_program));
  EXPECT_OK(run.Leave(behind));
}

TEST(CoordinatorEpochsTest, NothingIsMergedAfterwards) {
  CoordinatorDriver run({.min_islands = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  for (const v1::IslandIdentity& island : {a, b}) {
    ASSERT_THAT(run.Contribute(Contribution(island, 0)),
                IsOkAndHolds(v1::ContributeResponse::ACCEPTED));
  }
  ASSERT_THAT(run.closed_rounds(), SizeIs(1));
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  run.core().StandDown(5, run.effects());
  EXPECT_EQ(run.CountEvents("coordinator_replaced"), 1);
  EXPECT_THAT(run.core().message(), HasSubstr("epoch 5"));
  // The step that was under way fails, and is not tried again.
  run.Fail(run.core().CheckInOffice());
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  run.Advance(absl::Minutes(2));
  run.Tick();
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  run.core().StorageChecked(absl::OkStatus(), run.effects());
  EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
  EXPECT_EQ(run.CountEvents("run_suspended"), 0);
}

// Its log has the version, so the rules must know it.
TEST(CoordinatorEpochsTest, ACommitThatWasWrittenBeforeCounts) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  ASSERT_THAT(run.Contribute(Contribution(a, 0)),
              IsOkAndHolds(v1::ContributeResponse::ACCEPTED));
  run.core().StandDown(5, run.effects());
  run.Commit();
  EXPECT_EQ(run.version(), 1);
  EXPECT_EQ(run.core().run_state(), v1::SUSPENDED);
}

}  // namespace
}  // namespace causeway
