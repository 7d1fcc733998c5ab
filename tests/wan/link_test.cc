// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Real TCP through emulated links. Skipped where network namespaces are not
// permitted.
#include "tests/wan/link.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/wan/link_check.h"
#include "tests/wan/network_namespace.h"

namespace causeway {
namespace {

constexpr char kCoordinatorAddress[] = "10.77.0.1";
constexpr int kMtu = 1500;

ShaperSettings Direction(double megabits, absl::Duration delay) {
  return {.bits_per_second = megabits * 1e6,
          .delay = delay,
          .queue_bytes = std::max<int64_t>(
              64 << 10, static_cast<int64_t>(megabits * 1e6 / 8 * 0.1))};
}

class LinkTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status permitted = CheckPermitted();
    if (absl::IsPermissionDenied(permitted)) GTEST_SKIP() << permitted;
    ASSERT_OK(permitted);
    ASSERT_OK_AND_ASSIGN(NetworkNamespace coordinator,
                         NetworkNamespace::Create());
    coordinator_.emplace(std::move(coordinator));
    ASSERT_OK_AND_ASSIGN(NetworkNamespace island, NetworkNamespace::Create());
    island_.emplace(std::move(island));
    ASSERT_OK_AND_ASSIGN(NetworkNamespace::Scope scope, coordinator_->Enter());
    scope_.emplace(std::move(scope));
  }

  std::unique_ptr<Link> StartLink(const LinkSettings& settings) {
    Link::Options options = {
        .settings = settings, .seed = 1, .now = SteadyWallClock()};
    auto coordinator = OpenTap("island0", kCoordinatorAddress, kMtu);
    EXPECT_OK(coordinator.status());
    options.coordinator = *std::move(coordinator);
    {
      const auto inside = island_->Enter();
      auto island = OpenTap("wan0", "10.77.0.2", kMtu);
      EXPECT_OK(island.status());
      options.island = *std::move(island);
    }
    auto link = Link::Start(std::move(options));
    EXPECT_OK(link.status());
    return *std::move(link);
  }

  absl::StatusOr<LinkMeasurement> MeasureAndCheck(
      const LinkSettings& settings) {
    absl::StatusOr<LinkMeasurement> measured =
        MeasureAndCheckLink(*island_, kCoordinatorAddress, kMtu, settings);
    if (measured.ok()) {
      std::cout << "up " << measured->up / 1e6 << " Mbit/s, down "
                << measured->down / 1e6 << " Mbit/s, round trip "
                << measured->round_trip << "\n";
    }
    return measured;
  }

  std::optional<NetworkNamespace> coordinator_;
  std::optional<NetworkNamespace> island_;
  std::optional<NetworkNamespace::Scope> scope_;
};

TEST_F(LinkTest, TcpGetsTheRateAndTheRoundTripOfEachDirection) {
  const LinkSettings settings = {.up = Direction(10, absl::Milliseconds(20)),
                                 .down = Direction(40, absl::Milliseconds(5))};
  const std::unique_ptr<Link> link = StartLink(settings);
  ASSERT_OK(MeasureAndCheck(settings).status());
  EXPECT_GT(link->counters().up.bytes, 1'000'000);
  EXPECT_GT(link->counters().down.bytes, 4'000'000);
  // The link's thread sleeps between frames.
  EXPECT_LT(link->processor_time(), absl::Seconds(1));
}

TEST_F(LinkTest, ChangesTakeEffectWhileItRuns) {
  LinkSettings settings = {.up = Direction(10, absl::ZeroDuration()),
                           .down = Direction(10, absl::ZeroDuration())};
  const std::unique_ptr<Link> link = StartLink(settings);
  settings.up = Direction(20, absl::Milliseconds(30));
  link->Configure(settings);
  ASSERT_OK_AND_ASSIGN(const LinkMeasurement measured,
                       MeasureAndCheck(settings));
  // The check can fail, too.
  settings.up.delay = absl::Milliseconds(40);
  EXPECT_THAT(CheckLink(measured, settings),
              IsFailedPrecondition("round trip"));
  settings.up = Direction(30, absl::Milliseconds(30));
  EXPECT_THAT(CheckLink(measured, settings),
              IsFailedPrecondition("it is set to 30 Mbit/s"));
}

TEST_F(LinkTest, ALinkWithLossesStillCarriesEveryByte) {
  LinkSettings settings = {.up = Direction(20, absl::Milliseconds(2)),
                           .down = Direction(20, absl::Milliseconds(2))};
  settings.up.loss = 0.02;
  settings.up.jitter = absl::Milliseconds(2);
  const std::unique_ptr<Link> link = StartLink(settings);
  ASSERT_OK(MeasureAndCheck(settings).status());
  EXPECT_GT(link->counters().up.lost, 0);
  EXPECT_EQ(link->counters().down.lost, 0);
}

}  // namespace
}  // namespace causeway
