// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/settings_search.h"

#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

RunAssumptions Assumptions(double bits_per_second) {
  return {
      .layout = *MakeUniformLayout(1'000'000'000, 100'000'000, 24),
      .islands = {
          {.step_seconds = 0.1, .link = {bits_per_second, bits_per_second}},
          {.step_seconds = 0.1, .link = {bits_per_second, bits_per_second}}}};
}

FoundSettings Found(double bits_per_second, double utilization) {
  absl::StatusOr<FoundSettings> found =
      FindSettings(Assumptions(bits_per_second), utilization);
  EXPECT_OK(found);
  return *std::move(found);
}

TEST(FindSettingsTest, WithUnlimitedBandwidthNothingIsGivenUp) {
  const std::vector<Settings> found = Found(kUnlimited, 1).reaching;
  ASSERT_EQ(found.size(), 1);
  const v1::SynchronizationConfig& sync = found[0].synchronization;
  EXPECT_EQ(sync.inner_steps_per_round(), 1);
  EXPECT_EQ(sync.fragments(), 1);
  EXPECT_EQ(sync.overlap_steps(), 0);
  EXPECT_EQ(sync.uplink_format(), v1::FP32);
}

TEST(FindSettingsTest, FoundSettingsReachTheUtilizationAndAreNotBeaten) {
  const std::vector<Settings> found = Found(1e9, 0.9).reaching;
  ASSERT_GT(found.size(), 3);
  for (const Settings& a : found) {
    EXPECT_GE(a.prediction.simulated.utilization, 0.9 - 1e-6);
    const v1::SynchronizationConfig& x = a.synchronization;
    for (const Settings& b : found) {
      if (&a == &b) continue;
      const v1::SynchronizationConfig& y = b.synchronization;
      EXPECT_FALSE(x.inner_steps_per_round() <= y.inner_steps_per_round() &&
                   x.overlap_steps() <= y.overlap_steps() &&
                   a.prediction.up_bytes_per_round >=
                       b.prediction.up_bytes_per_round)
          << x.DebugString() << "beats\n"
          << y.DebugString();
    }
  }
}

TEST(FindSettingsTest, NoSettingSufficesForALinkThatCarriesNothing) {
  const FoundSettings found = Found(1, 0.5);
  EXPECT_TRUE(found.reaching.empty());
  EXPECT_EQ(found.closest.synchronization.inner_steps_per_round(), 10000);
  EXPECT_EQ(found.closest.synchronization.uplink_format(), v1::ECQ);
  EXPECT_GT(found.closest.prediction.simulated.utilization, 0);
}

TEST(FindSettingsTest, RefusesMoreThanAllOfTheTime) {
  EXPECT_FALSE(FindSettings(Assumptions(1e9), 1.01).ok());
  EXPECT_FALSE(FindSettings(Assumptions(1e9), 0).ok());
}

}  // namespace
}  // namespace causeway
