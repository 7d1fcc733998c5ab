// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/exchange_simulator.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-9;

// Returns 10 steps of 1 s, then an exchange of 30 bits up and 20 down at 10
// bits/s: five seconds without overlap.
Simulation DiLoCo() {
  return {.period_steps = 10,
          .exchanges = {{.ready_at = 10,
                         .needed_at = 10,
                         .up_bits = 30,
                         .down_bits = 20}},
          .islands = {{.step_seconds = 1, .link = {.up = 10, .down = 10}}}};
}

SimulatedRun Simulated(const Simulation& simulation) {
  absl::StatusOr<SimulatedRun> run = Simulate(simulation);
  EXPECT_OK(run);
  return *std::move(run);
}

TEST(ExchangeSimulatorTest, WithoutOverlapEverythingAddsUp) {
  Simulation simulation = DiLoCo();
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 3 + 2), kExact);
  // Adds a round trip and the merge.
  simulation.islands[0].round_trip_seconds = 0.5;
  simulation.exchanges[0].merge_seconds = 4;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 3 + 2 + 0.5 + 4),
              kExact);
}

// Windows of 115840 bits, then two, four and eight times as many, take a round
// trip of one second each, in which the link could carry 1e6. The rest of two
// million bits takes its own time.
TEST(ExchangeSimulatorTest, TcpBeginsSlowlyWhenALinkIsNew) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link = {.up = 1e6, .down = kUnlimited};
  simulation.islands[0].round_trip_seconds = 1;
  simulation.exchanges[0].up_bits = 2e6;
  const double cold = 4 + (2e6 - 15 * 115840.0) / 1e6;
  simulation.periods = 2;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + cold + 1),
              kExact);
  // One of the two measured periods.
  simulation.periods = 3;
  EXPECT_NEAR(Simulated(simulation).utilization, 20.0 / (20 + cold + 2 + 2),
              kExact);
  // A small transfer fits into the first window.
  simulation.exchanges[0].up_bits = 100e3;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 0.1 + 1), kExact);
}

TEST(ExchangeSimulatorTest, AfterAPauseTcpMayBeginSlowlyAgain) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link = {.up = 1e6, .down = kUnlimited};
  simulation.islands[0].round_trip_seconds = 1;
  simulation.exchanges[0].up_bits = 2e6;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 2 + 1), kExact);
  simulation.slow_start_after_idle = true;
  const double cold = 4 + (2e6 - 15 * 115840.0) / 1e6;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + cold + 1),
              kExact);
  // A pause is longer than a round trip and 0.2 s. Here it is the round trip
  // and the training.
  Simulation brief = simulation;
  brief.islands[0].step_seconds = 0.01;
  EXPECT_NEAR(Simulated(brief).utilization, 0.1 / (0.1 + 2 + 1), kExact);
  brief.islands[0].step_seconds = 0.03;
  EXPECT_NEAR(Simulated(brief).utilization, 0.3 / (0.3 + cold + 1), kExact);
  // A link that always has something to carry has no pauses.
  simulation.exchanges[0].up_bits = 20e6;
  simulation.exchanges[0].needed_at = 1000;
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / 20, kExact);
}

TEST(ExchangeSimulatorTest, OverlapHidesWhatItIsLongerThan) {
  Simulation simulation = DiLoCo();
  for (int overlap = 0; overlap < 5; ++overlap) {
    simulation.exchanges[0].needed_at = 10 + overlap;
    EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 5 - overlap),
                kExact)
        << overlap;
  }
  simulation.exchanges[0].needed_at = 15;
  EXPECT_NEAR(Simulated(simulation).utilization, 1, kExact);
}

TEST(ExchangeSimulatorTest, UnlimitedLinksCostNothing) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link = {};
  const SimulatedRun run = Simulated(simulation);
  EXPECT_NEAR(run.utilization, 1, kExact);
  EXPECT_NEAR(run.coordinator.up.mean, 3, kExact);
  EXPECT_NEAR(run.coordinator.up.peak, 30, kExact);
  EXPECT_NEAR(run.coordinator.down.peak, 20, kExact);
}

TEST(ExchangeSimulatorTest, NothingToExchangeIsTrainingAlone) {
  Simulation simulation = DiLoCo();
  simulation.exchanges.clear();
  const SimulatedRun run = Simulated(simulation);
  EXPECT_NEAR(run.utilization, 1, kExact);
  EXPECT_EQ(run.in_flight, 0);
}

// A link that carries less than islands send sets the pace: a period takes as
// long as its bits, with any overlap.
TEST(ExchangeSimulatorTest, ALinkThatIsTooSlowSetsThePace) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link.up = 2;
  simulation.exchanges[0].needed_at = 18;
  // 15 s up and 2 s down within 8 steps: 9 s of each 19 are waits.
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / 19, kExact);
  simulation.exchanges[0].needed_at = 1000;
  const SimulatedRun run = Simulated(simulation);
  EXPECT_NEAR(run.utilization, 10.0 / 15, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.mean, 2, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.peak, 2, kExact);
  EXPECT_GT(run.in_flight, 2);
}

TEST(ExchangeSimulatorTest, ExchangesOfOneLinkGoOneAfterTheOther) {
  Simulation simulation = DiLoCo();
  simulation.exchanges.push_back(simulation.exchanges[0]);
  // Uploads take 3 + 3 s and the last download 2 s; the first download hides
  // behind the second upload.
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 6 + 2), kExact);
  EXPECT_EQ(Simulated(simulation).in_flight, 2);
}

TEST(ExchangeSimulatorTest, MergesGoOneAfterTheOther) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link = {};
  simulation.exchanges[0].merge_seconds = 2;
  simulation.exchanges.push_back(simulation.exchanges[0]);
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / 14, kExact);
}

// A link that carries only one of two islands' transfers makes them take twice
// as long; a link that carries both does not.
TEST(ExchangeSimulatorTest, IslandsShareTheCoordinatorsLink) {
  Simulation simulation = DiLoCo();
  simulation.islands.push_back(simulation.islands[0]);
  simulation.coordinator = {.up = 10, .down = 10};
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 2 * (3 + 2)),
              kExact);
  simulation.coordinator = {.up = 20, .down = 20};
  const SimulatedRun run = Simulated(simulation);
  EXPECT_NEAR(run.utilization, 10.0 / (10 + 3 + 2), kExact);
  EXPECT_NEAR(run.coordinator.up.mean, 60.0 / 15, kExact);
  EXPECT_NEAR(run.coordinator.up.peak, 20, kExact);
  EXPECT_NEAR(run.islands[0].traffic.up.peak, 10, kExact);
}

// The other islands get the rate that a slow island cannot use.
TEST(ExchangeSimulatorTest, SharesAreMaxMinFair) {
  Simulation simulation = DiLoCo();
  simulation.islands.push_back(simulation.islands[0]);
  simulation.islands[1].link = {.up = 2, .down = 10};
  simulation.coordinator = {.up = 10};
  // The slow island takes 15 s; the other is done after 30 / 8 s and waits.
  EXPECT_NEAR(Simulated(simulation).utilization, 10.0 / (10 + 15 + 2), kExact);
}

TEST(ExchangeSimulatorTest, ReportsWhatIsBusy) {
  Simulation simulation = DiLoCo();
  simulation.islands.push_back(
      {.step_seconds = 2, .link = {.up = 5, .down = 4}});
  simulation.coordinator = {.up = 60, .down = 8};
  simulation.exchanges[0].merge_seconds = 7;
  const PeriodTimes busy = Simulated(simulation).busy;
  EXPECT_NEAR(busy.training, 20, kExact);
  EXPECT_NEAR(busy.uplink, 6, kExact);
  EXPECT_NEAR(busy.downlink, 5, kExact);
  EXPECT_NEAR(busy.coordinator_in, 1, kExact);
  EXPECT_NEAR(busy.coordinator_out, 5, kExact);
  EXPECT_NEAR(busy.merge, 7, kExact);
}

TEST(ExchangeSimulatorTest, AFastIslandWaitsForASlowOne) {
  Simulation simulation = DiLoCo();
  simulation.islands[0].link = {};
  simulation.islands.push_back(simulation.islands[0]);
  simulation.islands[1].step_seconds = 4;
  const SimulatedRun run = Simulated(simulation);
  EXPECT_NEAR(run.islands[0].utilization, 0.25, kExact);
  EXPECT_NEAR(run.islands[1].utilization, 1, kExact);
  EXPECT_NEAR(run.utilization, 0.625, kExact);
}

// A period of one step with everything in it is data parallel training.
TEST(ExchangeSimulatorTest, OneStepPeriodsAreDataParallel) {
  Simulation simulation = DiLoCo();
  simulation.period_steps = 1;
  simulation.exchanges[0].ready_at = 1;
  simulation.exchanges[0].needed_at = 1;
  EXPECT_NEAR(Simulated(simulation).utilization, 1.0 / (1 + 3 + 2), kExact);
}

TEST(ExchangeSimulatorTest, PeakIsOverOneSecond) {
  Simulation simulation = DiLoCo();
  // The download starts at 10 s with 100 bits/s and is done after 0.3 s.
  simulation.islands[0].link.up = 100;
  EXPECT_NEAR(Simulated(simulation).islands[0].traffic.up.peak, 30, kExact);
}

TEST(ExchangeSimulatorTest, MoreBandwidthNeverSlowsDown) {
  double last = 0;
  for (double rate = 0.5; rate < 200; rate *= 1.3) {
    Simulation simulation = DiLoCo();
    simulation.exchanges = {
        {.ready_at = 0, .needed_at = 2, .up_bits = 30, .down_bits = 20},
        {.ready_at = 3, .needed_at = 5, .up_bits = 7, .down_bits = 40},
        {.ready_at = 6, .needed_at = 14, .up_bits = 20, .down_bits = 20}};
    simulation.islands.push_back({.step_seconds = 1.1, .link = {rate, 13}});
    simulation.islands[0].link = {rate, rate};
    const double utilization = Simulated(simulation).utilization;
    EXPECT_GE(utilization, last - kExact) << rate;
    EXPECT_LE(utilization, 1);
    last = utilization;
  }
}

TEST(ExchangeSimulatorTest, RefusesWhatCannotBe) {
  const auto refusal = [](auto change) {
    Simulation simulation = DiLoCo();
    change(simulation);
    return std::string(Simulate(simulation).status().message());
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
              HasSubstr("1 rounds are to be simulated"));
  EXPECT_THAT(refusal([](Simulation& s) { s.exchanges[0].needed_at = 9; }),
              HasSubstr("needed_at - ready_at is -1"));
}

}  // namespace
}  // namespace causeway
