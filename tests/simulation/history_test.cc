// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/history.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "outer_optimizer/sync_schedule.h"
#include "server/rules/log_batch.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {
namespace {

constexpr uint32_t kAllFaults = (1u << kFaults) - 1;

TEST(HistoryTest, SameSeedMakesTheSameHistory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const HistoryResult once = RunHistory(seed, {}, /*trace=*/false);
    const HistoryResult again = RunHistory(seed, {}, /*trace=*/false);
    EXPECT_EQ(once.events, again.events) << seed;
    EXPECT_EQ(once.commits, again.commits) << seed;
    EXPECT_EQ(once.virtual_time, again.virtual_time) << seed;
  }
}

TEST(HistoryTest, WithoutFaultsEveryRoundOfEveryFragmentIsCommittedOnce) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Limits limits{.without = kAllFaults};
    const Scenario scenario = DrawScenario(seed, limits);
    const SyncSchedule schedule =
        *SyncSchedule::Create(scenario.config, scenario.plan);
    const HistoryResult result = RunHistory(seed, limits, /*trace=*/false);
    EXPECT_EQ(result.violation, "") << seed;
    EXPECT_EQ(result.faults, 0) << seed;
    EXPECT_EQ(result.commits, schedule.TotalRounds()) << seed;
    EXPECT_EQ(result.validated_version,
              scenario.config.validation().every_rounds() == 0
                  ? 0
                  : schedule.FinalModelVersion())
        << seed;
  }
}

TEST(ScenarioTest, KeepsToItsLimits) {
  const Limits limits{.max_islands = 2,
                      .max_fragments = 1,
                      .max_rounds = 3,
                      .without = kAllFaults & ~(1u << kLoss)};
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Scenario scenario = DrawScenario(seed, limits);
    EXPECT_LE(scenario.islands, 2);
    EXPECT_EQ(scenario.plan.fragments_size(), 1);
    EXPECT_EQ(scenario.faults & ~(1u << kLoss), 0);
  }
}

TEST(ContentsTest, IntervalsSurviveTheirEncoding) {
  const std::vector<Interval> intervals = {
      {.process = 0, .fragment = 0, .begin = 0, .end = 1},
      {.process = 17, .fragment = 2, .begin = 40, .end = 97}};
  EXPECT_EQ(DecodeIntervals(EncodeIntervals(intervals)), intervals);
  EXPECT_EQ(StepsIn(intervals), 58);
}

TEST(EventLoopTest, RunsInOrderOfTimeAndThenOfMaking) {
  EventLoop loop;
  std::string order;
  loop.After(absl::Seconds(2), [&] { order += 'c'; });
  loop.After(absl::Seconds(1), [&] {
    order += 'a';
    loop.After(absl::ZeroDuration(), [&] { order += 'b'; });
  });
  loop.After(absl::Seconds(2), [&] { order += 'd'; });
  while (loop.RunNext()) {
  }
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(loop.now(), absl::UnixEpoch() + absl::Seconds(2));
}

Scenario OneFragment(uint32_t faults) {
  Scenario scenario;
  scenario.plan.add_fragments();
  scenario.faults = faults;
  return scenario;
}

// A disk with one fragment and these faults.
struct DiskFixture {
  explicit DiskFixture(uint32_t faults) : scenario(OneFragment(faults)) {}
  LogBatch NextVersion() {
    CommitRecord commit = disk.commits(0).back();
    commit.head.set_version(commit.head.version() + 1);
    return {.commits = {commit}};
  }

  const Scenario scenario;
  World world{1, /*trace=*/false};
  uint64_t committed = 0;
  uint64_t unrecorded = 0;
  Disk disk{&scenario, &world,
            [this](const v1::FragmentHead&, const MergeRecord* record) {
              ++committed;
              unrecorded += record == nullptr;
            }};
};

TEST(DiskTest, WhatWasAnsweredIsThereAfterACrash) {
  DiskFixture fixture(0);
  absl::Status written = absl::UnknownError("no answer");
  fixture.disk.Write(fixture.NextVersion(),
                     [&](const absl::Status& status) { written = status; });
  while (fixture.world.loop.RunNext()) {
  }
  EXPECT_TRUE(written.ok());
  fixture.disk.Crash();
  EXPECT_EQ(fixture.disk.commits(0).size(), 2);
  EXPECT_EQ(fixture.committed, 1);
}

TEST(DiskTest, NothingIsAnsweredAfterACrash) {
  int there = 0;
  for (int i = 0; i < 40; ++i) {
    DiskFixture fixture(0);
    fixture.world.chance = Chance(static_cast<uint64_t>(i));
    fixture.disk.Write(fixture.NextVersion(),
                       [](const absl::Status&) { FAIL(); });
    fixture.disk.Crash();
    while (fixture.world.loop.RunNext()) {
    }
    there += fixture.disk.commits(0).size() == 2;
  }
  EXPECT_GT(there, 0);
  EXPECT_LT(there, 40);
}

LogBatch SomeEvent() {
  LogBatch batch;
  batch.events.emplace_back();
  return batch;
}

TEST(DiskTest, ACommitIsToldWithTheRecordOfItsMerge) {
  DiskFixture fixture(0);
  MergeRecord record;
  record.version.head.set_version(1);
  const auto run = [&] {
    while (fixture.world.loop.RunNext()) {
    }
  };
  fixture.disk.WriteRecord(record, [](const absl::Status&) {});
  run();
  for (const uint64_t unrecorded : {0, 1}) {
    fixture.disk.Write(fixture.NextVersion(), [](const absl::Status&) {});
    run();
    EXPECT_EQ(fixture.unrecorded, unrecorded);
  }
}

TEST(DiskTest, OldSnapshotsGoWithTheRecordsThatOnlyTheyNeeded) {
  DiskFixture fixture(0);
  for (uint64_t version = 1; version <= 3; ++version) {
    Version made;
    made.head.set_version(version);
    fixture.disk.WriteRecord({.version = made}, [](const absl::Status&) {});
    fixture.disk.WriteSnapshot(made, [](const absl::Status&) {});
    LogBatch batch = fixture.NextVersion();
    batch.snapshots.push_back({.head = made.head});
    fixture.disk.Write(batch, [](const absl::Status&) {});
    while (fixture.world.loop.RunNext()) {
    }
  }
  fixture.disk.RemoveOldSnapshots(0, 2);
  for (uint64_t version = 0; version <= 3; ++version) {
    v1::FragmentHead head;
    head.set_version(version);
    EXPECT_EQ(fixture.disk.FindSnapshot(head) != nullptr, version >= 2);
    EXPECT_EQ(fixture.disk.FindRecord(0, version) != nullptr, version == 3);
  }
}

TEST(DiskTest, AnUnknownOutcomeStopsEveryWriteUntilItIsKnown) {
  DiskFixture fixture(1u << kUnknownWrite);
  while (!fixture.disk.poisoned()) {
    fixture.disk.Write(SomeEvent(), [](const absl::Status&) {});
    ASSERT_TRUE(fixture.world.loop.RunNext());
  }
  absl::Status written;
  fixture.disk.Write(SomeEvent(),
                     [&](const absl::Status& status) { written = status; });
  fixture.world.loop.RunNext();
  EXPECT_TRUE(absl::IsFailedPrecondition(written));
  fixture.disk.Reconcile();
  EXPECT_FALSE(fixture.disk.poisoned());
}

}  // namespace
}  // namespace causeway::simulation
