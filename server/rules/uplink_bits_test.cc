// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/uplink_bits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::DoubleNear;
using testing::Optional;

constexpr UplinkBits::Limits kLimits = {.floor = 0.5, .target = 4};

// Repeats a measurement until the plan follows it.
std::optional<double> Settle(UplinkBits& plan, double in_time) {
  std::optional<double> changed;
  for (int i = 0; i < UplinkBits::kRounds; ++i) {
    EXPECT_EQ(changed, std::nullopt) << i;
    changed = plan.Heard(in_time);
  }
  return changed;
}

// Returns how late the latest upload ends if `bits` per value are queued for
// many rounds; at most 0 if all are in time.
double Lateness(const std::vector<UplinkSend>& sends, double round,
                double bits_per_second, double bits) {
  double free_at = 0;
  double latest = -std::numeric_limits<double>::infinity();
  for (int period = 0; period < 50; ++period) {
    for (const UplinkSend& send : sends) {
      const double at = period * round + send.at_seconds;
      free_at = std::max(free_at, at) + send.values * bits / bits_per_second;
      latest = std::max(latest, free_at - at - send.available_seconds);
    }
  }
  return latest;
}

TEST(BitsInTimeTest, OneFragmentGetsTheBitsThatItsTimeAllows) {
  const std::vector<UplinkSend> sends = {
      {.values = 1000, .at_seconds = 0, .available_seconds = 3}};
  EXPECT_DOUBLE_EQ(BitsInTime(sends, 10, 500), 1.5);
  // Longer uploads would queue from round to round.
  EXPECT_DOUBLE_EQ(BitsInTime(sends, 2, 500), 1);
  // The rest of an exchange takes its part, but a tenth remains.
  EXPECT_EQ(UploadSeconds(10, 4), 6);
  EXPECT_EQ(UploadSeconds(10, 50), 1);
}

TEST(BitsInTimeTest, AQueueOfFragmentsIsJustInTime) {
  std::mt19937_64 random(7);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    const double round = between(5, 20);
    std::vector<UplinkSend> sends;
    const int fragments = static_cast<int>(between(1, 6));
    for (int i = 0; i < fragments; ++i) {
      sends.push_back({.values = between(10, 1000),
                       .at_seconds = round * i / fragments,
                       .available_seconds = between(0.5, round)});
    }
    const double rate = between(10, 10000);
    const double bits = BitsInTime(sends, round, rate);
    EXPECT_LE(Lateness(sends, round, rate, bits * (1 - 1e-9)), 1e-6) << trial;
    EXPECT_GT(Lateness(sends, round, rate, bits * 1.2), 0) << trial;
  }
}

TEST(UplinkBitsTest, TheRateIsThatOfTheLastRounds) {
  UplinkBits plan(kLimits, 0);
  EXPECT_EQ(plan.RateAt(0, 0), std::nullopt);
  EXPECT_THAT(plan.RateAt(100, 2), Optional(400.0));
  EXPECT_EQ(plan.RateAt(100, 2), std::nullopt) << "nothing new";
  // The link becomes ten times as fast.
  EXPECT_THAT(plan.RateAt(200, 2.2), Optional(DoubleNear(1600 / 2.2, 1e-9)));
  EXPECT_THAT(plan.RateAt(300, 2.4), Optional(DoubleNear(1000, 1e-9)));
  EXPECT_THAT(plan.RateAt(400, 2.6), Optional(DoubleNear(3200 / 2.6, 1e-9)));
  EXPECT_THAT(plan.RateAt(500, 2.8), Optional(DoubleNear(4000 / 2.8, 1e-9)));
  EXPECT_THAT(plan.RateAt(600, 3), Optional(DoubleNear(1600, 1e-9)));
  EXPECT_THAT(plan.RateAt(700, 3.2), Optional(DoubleNear(4000, 1e-9)));
  // A report comes before the end of an upload, and then one after the next.
  EXPECT_THAT(plan.RateAt(800, 3.3), Optional(DoubleNear(4800 / 1.1, 1e-9)));
  EXPECT_THAT(plan.RateAt(900, 3.6), Optional(DoubleNear(4000, 1e-9)));
  EXPECT_EQ(plan.RateAt(1, 0), std::nullopt) << "sums do not fall";
  EXPECT_EQ(plan.RateAt(1000, std::numeric_limits<double>::quiet_NaN()),
            std::nullopt);
}

TEST(UplinkBitsTest, SeveralRoundsThatAgreeLowerAndRaiseThem) {
  UplinkBits plan(kLimits, 0);
  EXPECT_EQ(plan.bits(), 4);
  EXPECT_EQ(plan.Heard(2), std::nullopt);
  EXPECT_EQ(plan.Heard(2), std::nullopt);
  // A measurement in time restarts the count.
  EXPECT_EQ(plan.Heard(4), std::nullopt);
  EXPECT_EQ(plan.Heard(2), std::nullopt);
  EXPECT_EQ(plan.Heard(2.2), std::nullopt);
  EXPECT_THAT(plan.Heard(2), Optional(4.0));
  EXPECT_THAT(plan.bits(), DoubleNear(1.8, 1e-9)) << "nine tenths";
  // An increase that is not worth a change.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(plan.Heard(2.6), std::nullopt);
  EXPECT_EQ(plan.Heard(3), std::nullopt);
  EXPECT_EQ(plan.Heard(3), std::nullopt);
  EXPECT_THAT(plan.Heard(3), Optional(DoubleNear(1.8, 1e-9)));
  EXPECT_THAT(plan.bits(), DoubleNear(2.7, 1e-9));
  EXPECT_THAT(Settle(plan, 100), Optional(DoubleNear(2.7, 1e-9)));
  EXPECT_EQ(plan.bits(), 4);
  EXPECT_EQ(plan.in_time(), 100);
}

TEST(UplinkBitsTest, TheFloorIsSaidToBeTooSlow) {
  UplinkBits plan(kLimits, 0);
  EXPECT_THAT(Settle(plan, 0.55), Optional(4.0));
  EXPECT_THAT(plan.bits(), DoubleNear(0.5, 1e-9));
  EXPECT_FALSE(plan.is_too_slow());
  EXPECT_EQ(Settle(plan, 0.1), std::nullopt) << "nothing changes";
  EXPECT_TRUE(plan.is_too_slow());
}

TEST(UplinkBitsTest, BeginsWithTheBitsThatTheIslandHas) {
  EXPECT_EQ(UplinkBits(kLimits, 1.5).bits(), 1.5);
  EXPECT_EQ(UplinkBits(kLimits, 0.1).bits(), 0.5);
  EXPECT_EQ(UplinkBits(kLimits, 9).bits(), 4);
  EXPECT_EQ(
      UplinkBits(kLimits, std::numeric_limits<double>::quiet_NaN()).bits(), 4);
}

TEST(UplinkBitsTest, StaysWithinTheLimitsWhateverIsMeasured) {
  std::mt19937_64 random(3);
  UplinkBits plan(kLimits, 0);
  for (int i = 0; i < 10000; ++i) {
    const double choices[] = {
        0, 1e-300, 1e300, std::numeric_limits<double>::infinity(),
        std::exp2(std::uniform_real_distribution<double>(-6, 6)(random))};
    plan.Heard(choices[std::min<uint64_t>(random() % 20, 4)]);
    ASSERT_GE(plan.bits(), kLimits.floor);
    ASSERT_LE(plan.bits(), kLimits.target);
  }
}

TEST(UplinkBitsTest, AFasterLinkNeverGetsFewer) {
  double before = 0;
  for (double in_time = 0.01; in_time < 6; in_time *= 1.01) {
    UplinkBits plan(kLimits, 0);
    Settle(plan, in_time);
    EXPECT_GE(plan.bits(), before);
    EXPECT_LE(plan.bits(), std::max(kLimits.floor, in_time)) << "in time";
    before = plan.bits();
  }
  EXPECT_EQ(before, kLimits.target);
}

// Whatever the link, noise of 12 % lowers the plan a few times at most, and
// never back and forth.
TEST(UplinkBitsTest, NoiseDoesNotMakeItFlap) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> noise(0.88, 1.12);
  for (double link = 0.3; link < 6; link *= 1.1) {
    UplinkBits plan(kLimits, 0);
    int changes = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::optional<double> before = plan.Heard(link * noise(random));
      if (!before.has_value()) continue;
      ++changes;
      EXPECT_LT(plan.bits(), *before) << link;
    }
    EXPECT_LE(changes, 3) << link;
  }
}

}  // namespace
}  // namespace causeway
