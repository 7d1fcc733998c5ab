// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/shaper.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

constexpr absl::Time kStart = absl::UnixEpoch();

absl::Time At(double milliseconds) {
  return kStart + absl::Milliseconds(milliseconds);
}

double Milliseconds(absl::Time time) {
  return absl::ToDoubleMilliseconds(time - kStart);
}

std::string Frame(size_t bytes) { return std::string(bytes, 'x'); }

struct Arrival {
  absl::Time time;
  std::string frame;
};

// Asks the shaper exactly when it says that it has something, until it is
// empty.
std::vector<Arrival> ReceiveAll(Shaper& shaper) {
  std::vector<Arrival> arrivals;
  while (shaper.NextDue() < absl::InfiniteFuture()) {
    const absl::Time now = shaper.NextDue();
    while (std::optional<std::string> frame = shaper.Receive(now)) {
      arrivals.push_back({now, *std::move(frame)});
    }
  }
  return arrivals;
}

class ShaperTest : public testing::Test {
 protected:
  // A link that carries 1 byte per microsecond.
  ShaperSettings settings_ = {.bits_per_second = 8e6, .queue_bytes = 1 << 20};
};

TEST_F(ShaperTest, AFrameTakesItsTransmissionAndTheDelay) {
  settings_.delay = absl::Milliseconds(25);
  Shaper shaper(kStart, settings_, 1);
  EXPECT_EQ(shaper.NextDue(), absl::InfiniteFuture());
  shaper.Send(At(10), Frame(1000));
  EXPECT_FALSE(shaper.Receive(At(35.9)).has_value());
  EXPECT_EQ(shaper.NextDue(), At(36));
  EXPECT_EQ(shaper.Receive(At(36)), Frame(1000));
  EXPECT_EQ(shaper.NextDue(), absl::InfiniteFuture());
}

TEST_F(ShaperTest, ABacklogLeavesAtTheRateHoweverLateOneAsks) {
  Shaper shaper(kStart, settings_, 1);
  for (int i = 0; i < 100; ++i) shaper.Send(kStart, Frame(1000));
  // The frames take 100 ms; a caller that sleeps until 70.5 ms finds 70 of
  // them.
  int received = 0;
  while (shaper.Receive(At(70.5))) ++received;
  EXPECT_EQ(received, 70);
  // The transmitter kept working meanwhile.
  const std::vector<Arrival> rest = ReceiveAll(shaper);
  ASSERT_EQ(rest.size(), 30);
  EXPECT_NEAR(Milliseconds(rest.front().time), 71, 1e-6);
  EXPECT_NEAR(Milliseconds(rest.back().time), 100, 1e-6);
}

TEST_F(ShaperTest, AnIdleLinkSavesUpNothing) {
  Shaper shaper(kStart, settings_, 1);
  shaper.Send(At(500), Frame(1000));
  shaper.Send(At(500), Frame(1000));
  const std::vector<Arrival> arrivals = ReceiveAll(shaper);
  ASSERT_EQ(arrivals.size(), 2);
  EXPECT_EQ(arrivals[0].time, At(501));
  EXPECT_EQ(arrivals[1].time, At(502));
}

TEST_F(ShaperTest, AFullQueueDropsWhatCameLast) {
  settings_.queue_bytes = 3000;
  Shaper shaper(kStart, settings_, 1);
  for (int i = 0; i < 5; ++i) {
    shaper.Send(kStart, absl::StrCat(i, Frame(999)));
  }
  EXPECT_EQ(shaper.counters().overflowed, 2);
  // At 1 ms one frame has been transmitted and another fits.
  shaper.Send(At(1), absl::StrCat(5, Frame(999)));
  shaper.Send(At(1), absl::StrCat(6, Frame(999)));
  std::string order;
  for (const Arrival& arrival : ReceiveAll(shaper)) order += arrival.frame[0];
  EXPECT_EQ(order, "0125");
  EXPECT_EQ(shaper.counters().overflowed, 3);
  EXPECT_EQ(shaper.counters().frames, 4);
  EXPECT_EQ(shaper.counters().bytes, 4000);
}

TEST_F(ShaperTest, TheQueueBoundsTheWaitOfASteadyOverload) {
  settings_.queue_bytes = 50'000;  // 50 ms
  Shaper shaper(kStart, settings_, 1);
  int received = 0;
  for (int i = 0; i < 2000; ++i) {  // twice the rate for 1 s
    shaper.Send(At(i * 0.5), Frame(1000));
    while (shaper.Receive(At(i * 0.5))) ++received;
  }
  EXPECT_NEAR(received, 1000, 1);
  const std::vector<Arrival> rest = ReceiveAll(shaper);
  EXPECT_EQ(rest.size(), 50);
  EXPECT_EQ(shaper.counters().overflowed, 2000 - received - 50);
}

TEST_F(ShaperTest, LossesAreIndependentAndAsFrequentAsAskedFor) {
  settings_.loss = 0.1;
  settings_.queue_bytes = int64_t{1} << 40;
  Shaper shaper(kStart, settings_, 7);
  constexpr int kFrames = 100'000;
  for (int i = 0; i < kFrames; ++i) {
    shaper.Send(kStart, std::to_string(i));
  }
  int pairs = 0;
  int expected = 0;
  for (const Arrival& arrival : ReceiveAll(shaper)) {
    const int number = std::stoi(arrival.frame);
    pairs += number == expected + 1;  // exactly one missing
    expected = number + 1;
  }
  // The bound is five standard deviations of a binomial.
  EXPECT_NEAR(shaper.counters().lost, 0.1 * kFrames,
              5 * std::sqrt(kFrames * 0.1 * 0.9));
  // The probability of a single loss between two arrivals is 0.9 * 0.1 * 0.9.
  EXPECT_NEAR(pairs, 0.081 * kFrames, 5 * std::sqrt(kFrames * 0.081));
}

TEST_F(ShaperTest, LostFramesTakeTheirShareOfTheRate) {
  settings_.loss = 1;
  Shaper shaper(kStart, settings_, 1);
  shaper.Send(kStart, Frame(1000));
  EXPECT_TRUE(ReceiveAll(shaper).empty());
  settings_.loss = 0;
  shaper.Configure(At(2), settings_);
  shaper.Send(At(2), Frame(1000));
  settings_.loss = 1;
  Shaper busy(kStart, settings_, 1);
  busy.Send(kStart, Frame(1000));
  busy.Send(kStart, Frame(1000));
  EXPECT_FALSE(busy.Receive(At(1.5)).has_value());
  EXPECT_EQ(busy.counters().lost, 1);
  settings_.loss = 0;
  busy.Configure(At(1.5), settings_);
  EXPECT_EQ(ReceiveAll(busy).front().time, At(2));
}

TEST_F(ShaperTest, JitterSpreadsButNeverReorders) {
  settings_.delay = absl::Milliseconds(20);
  settings_.jitter = absl::Milliseconds(10);
  Shaper shaper(kStart, settings_, 3);
  double sum = 0;
  int before = -1;
  for (int i = 0; i < 1000; ++i) {
    // Frames are far enough apart for each to take the delay that it drew.
    const double sent = i * 100;
    shaper.Send(At(sent), std::to_string(i));
    const std::vector<Arrival> arrivals = ReceiveAll(shaper);
    ASSERT_EQ(arrivals.size(), 1);
    const double took = Milliseconds(arrivals[0].time) - sent;
    EXPECT_GE(took, 20);
    EXPECT_LT(took, 30.01);
    sum += took;
  }
  EXPECT_NEAR(sum / 1000, 25, 0.5);
  for (int i = 0; i < 1000; ++i) shaper.Send(At(200'000), std::to_string(i));
  for (const Arrival& arrival : ReceiveAll(shaper)) {
    EXPECT_EQ(std::stoi(arrival.frame), before + 1);
    before = std::stoi(arrival.frame);
  }
  EXPECT_EQ(before, 999);
}

TEST_F(ShaperTest, AChangeOfRateHoldsForTheRestOfTheFrameInTransmission) {
  Shaper shaper(kStart, settings_, 1);
  shaper.Send(kStart, Frame(1000));
  shaper.Send(kStart, Frame(1000));
  settings_.bits_per_second = 2e6;
  shaper.Configure(At(0.5), settings_);
  const std::vector<Arrival> arrivals = ReceiveAll(shaper);
  ASSERT_EQ(arrivals.size(), 2);
  EXPECT_NEAR(Milliseconds(arrivals[0].time), 0.5 + 0.5 * 4, 1e-6);
  EXPECT_NEAR(Milliseconds(arrivals[1].time), 0.5 + 0.5 * 4 + 4, 1e-6);
}

TEST_F(ShaperTest, AShorterDelayReordersNothing) {
  settings_.delay = absl::Milliseconds(100);
  Shaper shaper(kStart, settings_, 1);
  shaper.Send(kStart, "first");
  EXPECT_FALSE(shaper.Receive(At(1)).has_value());
  settings_.delay = absl::ZeroDuration();
  shaper.Configure(At(1), settings_);
  shaper.Send(At(1), "second");
  std::vector<std::string> order;
  for (const Arrival& arrival : ReceiveAll(shaper)) {
    order.push_back(arrival.frame);
  }
  EXPECT_THAT(order, ElementsAre("first", "second"));
}

TEST_F(ShaperTest, APartitionDropsWhatIsInTheLinkAndWhatComes) {
  settings_.delay = absl::Milliseconds(5);
  Shaper shaper(kStart, settings_, 1);
  for (int i = 0; i < 3; ++i) shaper.Send(kStart, Frame(1000));
  settings_.partitioned = true;
  shaper.Configure(At(1.5), settings_);  // one on the wire, two queued
  shaper.Send(At(2), Frame(1000));
  EXPECT_EQ(shaper.NextDue(), absl::InfiniteFuture());
  EXPECT_EQ(shaper.counters().partitioned, 4);
  settings_.partitioned = false;
  shaper.Configure(At(100), settings_);
  shaper.Send(At(100), Frame(1000));
  const std::vector<Arrival> arrivals = ReceiveAll(shaper);
  ASSERT_EQ(arrivals.size(), 1);
  EXPECT_EQ(arrivals[0].time, At(106));
}

TEST_F(ShaperTest, CountsBytesBySecond) {
  settings_.queue_bytes = 2'000'000;
  Shaper shaper(kStart, settings_, 1);
  for (int i = 0; i < 3; ++i) shaper.Send(At(0), Frame(400'000));
  shaper.Send(At(3500), Frame(100));
  ReceiveAll(shaper);
  // Each frame takes 0.4 s; the third ends in the second second.
  EXPECT_THAT(shaper.counters().bytes_by_second,
              ElementsAre(800'000, 400'000, 0, 100));
  EXPECT_EQ(shaper.counters().bytes, 1'200'100);
  shaper.ResetCounters(At(3750));
  EXPECT_EQ(shaper.counters().bytes, 0);
  shaper.Send(At(4500), Frame(100));
  shaper.Send(At(4800), Frame(10));
  ReceiveAll(shaper);
  EXPECT_THAT(shaper.counters().bytes_by_second, ElementsAre(100, 10));
}

TEST_F(ShaperTest, TheSameSeedLosesTheSameFrames) {
  settings_.loss = 0.5;
  std::vector<std::string> outcomes;
  for (const uint64_t seed : {5, 5, 6}) {
    Shaper shaper(kStart, settings_, seed);
    std::string outcome;
    for (int i = 0; i < 64; ++i) shaper.Send(kStart, std::string(1, 'A' + i));
    for (const Arrival& arrival : ReceiveAll(shaper)) outcome += arrival.frame;
    outcomes.push_back(outcome);
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_NE(outcomes[0], outcomes[2]);
}

}  // namespace
}  // namespace causeway
