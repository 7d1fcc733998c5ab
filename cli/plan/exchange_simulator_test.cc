// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/exchange_simulator.h"

#include <string>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-9;

class ExchangeSimulatorTest : public testing::Test {
 protected:
  SimulatedRun Simulated() const {
    absl::StatusOr<SimulatedRun> run = Simulate(simulation_);
    EXPECT_OK(run);
    return *std::move(run);
  }
  double Utilization() const { return Simulated().utilization; }

  // 10 steps of 1 s, then an exchange of 30 bits up and 20 down at 10 bits/s:
  // five seconds without overlap.
  Simulation simulation_ = {
      .period_steps = 10,
      .exchanges =
          {{.ready_at = 10, .needed_at = 10, .up_bits = 30, .down_bits = 20}},
      .islands = {{.step_seconds = 1, .link = {.up = 10, .down = 10}}}};
};

TEST_F(ExchangeSimulatorTest, WithoutOverlapEverythingAddsUp) {
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 3 + 2), kExact);
  // Adds a round trip and the merge.
  simulation_.islands[0].round_trip_seconds = 0.5;
  simulation_.exchanges[0].merge_seconds = 4;
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 3 + 2 + 0.5 + 4), kExact);
}

// Windows of 115840 bits, then two, four and eight times as many, take a round
// trip of 1 s each, in which the link could carry 1e6 bits. The rest of the 2e6
// bits travels at the link's rate.
TEST_F(ExchangeSimulatorTest, TcpBeginsSlowlyWhenALinkIsNew) {
  simulation_.islands[0].link = {.up = 1e6, .down = kUnlimited};
  simulation_.islands[0].round_trip_seconds = 1;
  simulation_.exchanges[0].up_bits = 2e6;
  const double cold = 4 + (2e6 - 15 * 115840.0) / 1e6;
  simulation_.periods = 2;
  EXPECT_NEAR(Utilization(), 10.0 / (10 + cold + 1), kExact);
  // One of the two measured periods.
  simulation_.periods = 3;
  EXPECT_NEAR(Utilization(), 20.0 / (20 + cold + 2 + 2), kExact);
  // A small transfer fits into the first window.
  simulation_.exchanges[0].up_bits = 100e3;
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 0.1 + 1), kExact);
}

TEST_F(ExchangeSimulatorTest, AfterAPauseTcpMayBeginSlowlyAgain) {
  simulation_.islands[0].link = {.up = 1e6, .down = kUnlimited};
  simulation_.islands[0].round_trip_seconds = 1;
  simulation_.exchanges[0].up_bits = 2e6;
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 2 + 1), kExact);
  simulation_.slow_start_after_idle = true;
  const double cold = 4 + (2e6 - 15 * 115840.0) / 1e6;
  EXPECT_NEAR(Utilization(), 10.0 / (10 + cold + 1), kExact);
  // A pause is longer than a round trip and than 0.2 s. Here the link pauses
  // for the round trip and the training.
  simulation_.islands[0].step_seconds = 0.01;
  EXPECT_NEAR(Utilization(), 0.1 / (0.1 + 2 + 1), kExact);
  simulation_.islands[0].step_seconds = 0.03;
  EXPECT_NEAR(Utilization(), 0.3 / (0.3 + cold + 1), kExact);
  // A link that always has something to carry has no pauses.
  simulation_.islands[0].step_seconds = 1;
  simulation_.exchanges[0].up_bits = 20e6;
  simulation_.exchanges[0].needed_at = 1000;
  EXPECT_NEAR(Utilization(), 10.0 / 20, kExact);
}

TEST_F(ExchangeSimulatorTest, OverlapHidesShorterExchanges) {
  for (int overlap = 0; overlap < 5; ++overlap) {
    simulation_.exchanges[0].needed_at = 10 + overlap;
    EXPECT_NEAR(Utilization(), 10.0 / (10 + 5 - overlap), kExact) << overlap;
  }
  simulation_.exchanges[0].needed_at = 15;
  EXPECT_NEAR(Utilization(), 1, kExact);
}

TEST_F(ExchangeSimulatorTest, UnlimitedLinksCostNothing) {
  simulation_.islands[0].link = {};
  const SimulatedRun run = Simulated();
  EXPECT_NEAR(run.utilization, 1, kExact);
  EXPECT_NEAR(run.coordinator.up.mean, 3, kExact);
  EXPECT_NEAR(run.coordinator.up.peak, 30, kExact);
  EXPECT_NEAR(run.coordinator.down.peak, 20, kExact);
}

TEST_F(ExchangeSimulatorTest, NothingToExchangeIsTrainingAlone) {
  simulation_.exchanges.clear();
  const SimulatedRun run = Simulated();
  EXPECT_NEAR(run.utilization, 1, kExact);
  EXPECT_EQ(run.in_flight, 0);
}

// A link that carries less than islands send sets the pace: a period takes as
// long as its bits, whatever the overlap.
TEST_F(ExchangeSimulatorTest, ALinkThatIsTooSlowSetsThePace) {
  simulation_.islands[0].link.up = 2;
  simulation_.exchanges[0].needed_at = 18;
  // 15 s up and 2 s down within 8 steps: 9 s of each 19 are waits.
  EXPECT_NEAR(Utilization(), 10.0 / 19, kExact);
  simulation_.exchanges[0].needed_at = 1000;
  const SimulatedRun run = Simulated();
  EXPECT_NEAR(run.utilization, 10.0 / 15, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.mean, 2, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.peak, 2, kExact);
  EXPECT_GT(run.in_flight, 2);
}

TEST_F(ExchangeSimulatorTest, ExchangesOfOneLinkGoOneAfterTheOther) {
  simulation_.exchanges.push_back(simulation_.exchanges[0]);
  // Uploads take 3 + 3 s and the last download 2 s; the first download hides
  // behind the second upload.
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 6 + 2), kExact);
  EXPECT_EQ(Simulated().in_flight, 2);
}

TEST_F(ExchangeSimulatorTest, MergesGoOneAfterTheOther) {
  simulation_.islands[0].link = {};
  simulation_.exchanges[0].merge_seconds = 2;
  simulation_.exchanges.push_back(simulation_.exchanges[0]);
  EXPECT_NEAR(Utilization(), 10.0 / 14, kExact);
}

// A link that carries only one of two islands' transfers makes them take twice
// as long; a link that carries both does not.
TEST_F(ExchangeSimulatorTest, IslandsShareTheCoordinatorsLink) {
  simulation_.islands.push_back(simulation_.islands[0]);
  simulation_.coordinator = {.up = 10, .down = 10};
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 2 * (3 + 2)), kExact);
  simulation_.coordinator = {.up = 20, .down = 20};
  const SimulatedRun run = Simulated();
  EXPECT_NEAR(run.utilization, 10.0 / (10 + 3 + 2), kExact);
  EXPECT_NEAR(run.coordinator.up.mean, 60.0 / 15, kExact);
  EXPECT_NEAR(run.coordinator.up.peak, 20, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.peak, 10, kExact);
}

// The other islands get the rate that a slow island cannot use.
TEST_F(ExchangeSimulatorTest, SharesAreMaxMinFair) {
  simulation_.islands.push_back(simulation_.islands[0]);
  simulation_.islands[1].link = {.up = 2, .down = 10};
  simulation_.coordinator = {.up = 10};
  // The slow island takes 15 s; the other is done after 30 / 8 s and waits.
  EXPECT_NEAR(Utilization(), 10.0 / (10 + 15 + 2), kExact);
}

TEST_F(ExchangeSimulatorTest, ReportsWhatIsBusy) {
  simulation_.islands.push_back(
      {.step_seconds = 2, .link = {.up = 5, .down = 4}});
  simulation_.coordinator = {.up = 60, .down = 8};
  simulation_.exchanges[0].merge_seconds = 7;
  const PeriodTimes busy = Simulated().busy;
  EXPECT_NEAR(busy.training, 20, kExact);
  EXPECT_NEAR(busy.uplink, 6, kExact);
  EXPECT_NEAR(busy.downlink, 5, kExact);
  EXPECT_NEAR(busy.coordinator_in, 1, kExact);
  EXPECT_NEAR(busy.coordinator_out, 5, kExact);
  EXPECT_NEAR(busy.merge, 7, kExact);
}

TEST_F(ExchangeSimulatorTest, AFastIslandWaitsForASlowOne) {
  simulation_.islands[0].link = {};
  simulation_.islands.push_back(simulation_.islands[0]);
  simulation_.islands[1].step_seconds = 4;
  const SimulatedRun run = Simulated();
  EXPECT_NEAR(run.islands[0].utilization, 0.25, kExact);
  EXPECT_NEAR(run.islands[1].utilization, 1, kExact);
  EXPECT_NEAR(run.utilization, 0.625, kExact);
}

// A period of one step with everything in it is data parallel training.
TEST_F(ExchangeSimulatorTest, OneStepPeriodsAreDataParallel) {
  simulation_.period_steps = 1;
  simulation_.exchanges[0].ready_at = 1;
  simulation_.exchanges[0].needed_at = 1;
  EXPECT_NEAR(Utilization(), 1.0 / (1 + 3 + 2), kExact);
}

TEST_F(ExchangeSimulatorTest, PeakIsOverOneSecond) {
  // The download starts at 10 s with 100 bits/s and is done after 0.3 s.
  simulation_.islands[0].link.up = 100;
  EXPECT_NEAR(Simulated().islands[0].traffic.up.peak, 30, kExact);
}

TEST_F(ExchangeSimulatorTest, MoreBandwidthNeverSlowsDown) {
  simulation_.exchanges = {
      {.ready_at = 0, .needed_at = 2, .up_bits = 30, .down_bits = 20},
      {.ready_at = 3, .needed_at = 5, .up_bits = 7, .down_bits = 40},
      {.ready_at = 6, .needed_at = 14, .up_bits = 20, .down_bits = 20}};
  simulation_.islands.push_back({.step_seconds = 1.1});
  double last = 0;
  for (double rate = 0.5; rate < 200; rate *= 1.3) {
    simulation_.islands[0].link = {rate, rate};
    simulation_.islands[1].link = {rate, 13};
    const double utilization = Utilization();
    EXPECT_GE(utilization, last - kExact) << rate;
    EXPECT_LE(utilization, 1);
    last = utilization;
  }
}

TEST_F(ExchangeSimulatorTest, RefusesImpossibleValues) {
  const auto refusal = [this](auto change) {
    Simulation changed = simulation_;
    change(changed);
    return std::string(Simulate(changed).status().message());
  };
  EXPECT_THAT(refusal([](Simulation& s) { s.islands[0].link.up = 0; }),
              HasSubstr("the rate of an uplink is 0"));
  EXPECT_THAT(refusal([](Simulation& s) { s.coordinator.down = -1; }),
              HasSubstr("the rate of a downlink is -1"));
  EXPECT_THAT(refusal([](Simulation& s) { s.islands.clear(); }),
              HasSubstr("no islands"));
  EXPECT_THAT(refusal([](Simulation& s) { s.islands[0].step_seconds = 0; }),
              HasSubstr("the time of an inner step is 0"));
  EXPECT_THAT(refusal([](Simulation& s) { s.periods = 1; }),
              HasSubstr("simulated rounds is 1; "));
  EXPECT_THAT(refusal([](Simulation& s) { s.exchanges[0].needed_at = 9; }),
              HasSubstr("needed_at - ready_at is -1"));
}

}  // namespace
}  // namespace causeway
