// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what a coordinator plans from islands' measurements of their links.
#include <cstdint>
#include <limits>
#include <map>
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

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kStep = 2;
constexpr uint64_t kOverlap = 3;
// An outer step takes 1 s of the overlap, and the download of 4 bits for each
// value half a second.
constexpr double kUploadSeconds = kOverlap * kStep - 1 - 0.5;
constexpr double kDownBytes = CoordinatorDriver::kFragmentSize * 4 / 8.0 / 0.5;

// Returns the rate, in bytes per second, at which this many bits per value
// arrive in time.
double RateFor(double bits) {
  return bits * CoordinatorDriver::kFragmentSize / 8 / kUploadSeconds;
}

class UplinksTest : public testing::Test {
 protected:
  explicit UplinksTest(double floor = 0.5)
      : run_({.rounds = 100,
              .overlap_steps = kOverlap,
              .configure = [floor](v1::RunConfig& config) {
                v1::SynchronizationConfig& sync =
                    *config.mutable_synchronization();
                sync.set_inner_steps_per_round(CoordinatorDriver::kRoundSteps);
                sync.set_uplink_format(v1::ECQ);
                sync.set_downlink_format(v1::ECQ);
                sync.set_ecq_bits(4);
                sync.set_uplink_bits_floor(floor);
                sync.set_inner_step_shares(v1::SynchronizationConfig::NOBODY);
                // One contribution closes a round.
                config.mutable_membership()->set_grace_seconds(0);
              }}) {}

  // Reports that another million bytes were sent at this rate.
  v1::IslandProgress Report(const std::string& island, double bytes_per_second,
                            double bits = 0) {
    v1::LinkUse& use = uplinks_[island];
    constexpr double kBytes = 1e6;
    use.set_busy_seconds(use.busy_seconds() + kBytes / bytes_per_second);
    bytes_up_[island] += static_cast<uint64_t>(kBytes);
    v1::IslandProgress progress;
    progress.set_step_seconds(kStep);
    progress.set_uplink_bits(bits);
    progress.set_bytes_up(bytes_up_[island]);
    *progress.mutable_uplink() = use;
    progress.mutable_downlink()->set_bytes_per_second(kDownBytes);
    return progress;
  }
  // Commits a version with a contribution of the island.
  void Commit(const v1::IslandIdentity& island) {
    v1::ContributionHeader header = Contribution(island, run_.version());
    header.mutable_object()->set_format(v1::ECQ);
    header.mutable_object()->set_entropy_coded(true);
    header.mutable_object()->set_encoded_bytes(10);
    ASSERT_OK(run_.Contribute(header));
    run_.Tick();
    run_.Commit();
  }
  // Passes `count` rounds, in which the islands measure these rates.
  void Rounds(int count, const std::vector<v1::IslandIdentity>& islands,
              const std::vector<double>& rates) {
    for (int i = 0; i < count; ++i) {
      for (size_t j = 0; j < islands.size(); ++j) {
        ASSERT_OK(run_.Heartbeat(islands[j],
                                 Report(islands[j].island_id(), rates[j])));
      }
      Commit(islands[0]);
    }
  }
  double Planned(const v1::IslandIdentity& island) {
    return run_.core().View(island).uplink_bits();
  }
  std::string LastEvent(const std::string& kind) {
    std::string text;
    for (const CoordinatorEvent& event : run_.effects().events) {
      if (event.kind == kind) text = event.text;
    }
    return text;
  }

  CoordinatorDriver run_;
  // Keyed by island.
  std::map<std::string, uint64_t> bytes_up_;
  std::map<std::string, v1::LinkUse> uplinks_;
};

TEST_F(UplinksTest, ASlowUplinkGetsFewerBitsAndAFastOneDoesNot) {
  const auto fast = run_.Join("fast");
  const auto slow = run_.Join("slow");
  EXPECT_EQ(Planned(slow), 4);
  Rounds(2, {fast, slow}, {RateFor(8), RateFor(2)});
  EXPECT_EQ(Planned(slow), 4);
  run_.effects().view_changed = false;
  Rounds(1, {fast, slow}, {RateFor(8), RateFor(2)});
  EXPECT_TRUE(run_.effects().view_changed);
  EXPECT_EQ(Planned(fast), 4);
  EXPECT_NEAR(Planned(slow), 1.8, 0.011);
  EXPECT_EQ(run_.CountEvents("uplink_bits"), 1);
  EXPECT_THAT(LastEvent("uplink_bits"),
              AllOf(HasSubstr("island slow sends 1.8 bits per value from now "
                              "on, not 4: its uplink reaches"),
                    HasSubstr("an upload has 4.50 s"), Not(HasSubstr("wait"))));
  Rounds(20, {fast, slow}, {RateFor(8), RateFor(2)});
  EXPECT_EQ(run_.CountEvents("uplink_bits"), 1);
  // The rates of earlier rounds still count in the first rounds.
  Rounds(13, {fast, slow}, {RateFor(8), RateFor(8)});
  EXPECT_EQ(Planned(slow), 4);
  EXPECT_LE(run_.CountEvents("uplink_bits"), 3);
  EXPECT_EQ(run_.CountEvents("uplink_too_slow"), 0);
}

TEST_F(UplinksTest, AnUplinkBelowTheFloorIsNamed) {
  const auto island = run_.Join("a");
  Rounds(3, {island}, {RateFor(0.25)});
  EXPECT_EQ(Planned(island), 0.5);
  EXPECT_EQ(run_.CountEvents("uplink_too_slow"), 1);
  EXPECT_THAT(LastEvent("uplink_too_slow"),
              HasSubstr("enough for 0.25 only; so islands wait for it"));
}

TEST_F(UplinksTest, ARoundTripIsLostForUploads) {
  const auto island = run_.Join("a");
  for (int i = 0; i < 3; ++i) {
    v1::IslandProgress report = Report("a", RateFor(2));
    report.set_round_trip_seconds(0.5);
    ASSERT_OK(run_.Heartbeat(island, report));
    Commit(island);
  }
  EXPECT_THAT(LastEvent("uplink_bits"), HasSubstr("an upload has 4.00 s"));
}

TEST_F(UplinksTest, OneMeasurementCountsOnce) {
  const auto island = run_.Join("a");
  ASSERT_OK(run_.Heartbeat(island, Report("a", RateFor(1))));
  for (int i = 0; i < 10; ++i) Commit(island);
  EXPECT_EQ(Planned(island), 4);
}

// An update is due first at the island with the shortest overlap.
TEST_F(UplinksTest, TheShortestOverlapOfAnIslandCounts) {
  const auto first = run_.Join("first");
  const auto second = run_.Join("second");
  const auto seconds_after = [&](uint32_t of_first, uint32_t of_second) {
    // Both the rate and the plan follow after some rounds.
    for (int i = 0; i < 12; ++i) {
      for (const auto& [island, overlap] :
           {std::pair(first, of_first), std::pair(second, of_second)}) {
        v1::IslandProgress report =
            Report(island.island_id(), RateFor(of_first % 2 == 0 ? 1.5 : 3));
        report.set_overlap_steps(overlap);
        EXPECT_OK(run_.Heartbeat(island, report));
      }
      Commit(first);
    }
    return LastEvent("uplink_bits");
  };
  EXPECT_THAT(seconds_after(4, 4), HasSubstr("an upload has 6.50 s"));
  EXPECT_THAT(seconds_after(5, 2), HasSubstr("an upload has 2.50 s"));
  // A claim below half of the run's overlap counts as half.
  EXPECT_THAT(seconds_after(6, 1), HasSubstr("an upload has 1.50 s"));
}

// All islands train at the pace of the slowest, which leaves more time.
TEST_F(UplinksTest, SlowStepsOfAnotherIslandLeaveMoreTime) {
  const auto island = run_.Join("a");
  v1::IslandProgress other;
  other.set_step_seconds(3 * kStep);
  ASSERT_OK(run_.Heartbeat(run_.Join("b"), other));
  Rounds(3, {island}, {RateFor(2)});
  EXPECT_EQ(Planned(island), 4);
}

TEST_F(UplinksTest, ClaimsOfOneIslandLeaveTheOthersHalfOfTheTime) {
  const auto island = run_.Join("a");
  v1::IslandProgress liar;
  liar.set_step_seconds(std::numeric_limits<double>::infinity());
  liar.set_round_trip_seconds(std::numeric_limits<double>::quiet_NaN());
  liar.mutable_downlink()->set_bytes_per_second(1e-9);
  ASSERT_OK(run_.Heartbeat(run_.Join("b"), liar));
  Rounds(3, {island}, {RateFor(3)});
  // 3 s, less the outer step.
  EXPECT_NEAR(Planned(island), 3 * 0.9 * 2 / kUploadSeconds, 0.011);
}

TEST_F(UplinksTest, BitsOfTheIslandsOperatorStay) {
  const auto island = run_.Join("a");
  for (int i = 0; i < 10; ++i) {
    v1::IslandProgress progress = Report("a", RateFor(1));
    progress.set_own_uplink_bits(true);
    ASSERT_OK(run_.Heartbeat(island, progress));
    Commit(island);
  }
  EXPECT_EQ(run_.CountEvents("uplink_bits"), 0);
}

TEST_F(UplinksTest, ARestartedCoordinatorKeepsThePlannedBits) {
  const auto joined = run_.TryJoin("a", 1);
  ASSERT_OK(joined);
  v1::IslandProgress progress = Report("a", RateFor(2), 1.8);
  progress.set_ready(true);
  ASSERT_OK(run_.Heartbeat(joined->identity(), progress));
  EXPECT_EQ(Planned(joined->identity()), 1.8);
}

class NoFloorTest : public UplinksTest {
 protected:
  NoFloorTest() : UplinksTest(/*floor=*/0) {}
};

TEST_F(NoFloorTest, WithoutAFloorNothingIsPlanned) {
  const auto island = run_.Join("a");
  Rounds(10, {island}, {RateFor(1)});
  EXPECT_EQ(Planned(island), 0);
  EXPECT_EQ(run_.CountEvents("uplink_bits"), 0);
}

}  // namespace
}  // namespace causeway
