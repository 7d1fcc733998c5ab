// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/link_meter.h"

#include <optional>

#include "gtest/gtest.h"

namespace causeway {
namespace {

class LinkMeterTest : public testing::Test {
 protected:
  // Sends a chunk every 100 ms for `seconds`.
  void Send(int seconds, uint64_t bytes_per_second) {
    for (int i = 0; i < 10 * seconds; ++i) {
      now_ += absl::Milliseconds(100);
      meter_.Add(bytes_per_second / 10);
    }
  }

  absl::Time now_ = absl::UnixEpoch();
  LinkMeter meter_{[this] { return now_; }};
};

TEST_F(LinkMeterTest, HasNoRateBeforeTheFirstTransfer) {
  now_ += absl::Seconds(100);
  EXPECT_EQ(meter_.Use().bytes_per_second(), 0);
  EXPECT_EQ(meter_.Use().busy_seconds(), 0);
}

TEST_F(LinkMeterTest, PausesDoNotCount) {
  for (int i = 0; i < 3; ++i) {
    {
      const LinkMeter::Transfer transfer(&meter_);
      Send(2, 1000);
    }
    now_ += absl::Seconds(50);
  }
  EXPECT_DOUBLE_EQ(meter_.Use().busy_seconds(), 6);
  EXPECT_DOUBLE_EQ(meter_.Use().bytes_per_second(), 1000);
  EXPECT_EQ(meter_.bytes(), 6000u);
}

TEST_F(LinkMeterTest, TransfersAtOnceShareTheTime) {
  std::optional<LinkMeter::Transfer> first(&meter_);
  Send(1, 1000);
  std::optional<LinkMeter::Transfer> second(&meter_);
  Send(2, 3000);
  first.reset();
  Send(1, 1000);
  second.reset();
  EXPECT_DOUBLE_EQ(meter_.Use().busy_seconds(), 4);
  EXPECT_DOUBLE_EQ(meter_.Use().bytes_per_second(), 2000);
}

TEST_F(LinkMeterTest, ARateOfLongAgoIsForgotten) {
  const LinkMeter::Transfer transfer(&meter_);
  Send(30, 1'000'000);
  Send(11, 1000);
  EXPECT_NEAR(meter_.Use().bytes_per_second(), 1000, 1);
  EXPECT_DOUBLE_EQ(meter_.Use().busy_seconds(), 41);
}

TEST_F(LinkMeterTest, AStalledTransferLowersTheRate) {
  const LinkMeter::Transfer transfer(&meter_);
  Send(1, 1000);
  now_ += absl::Seconds(3);
  EXPECT_DOUBLE_EQ(meter_.Use().bytes_per_second(), 250);
}

TEST_F(LinkMeterTest, CountsWhatWasSentAgainAndWhatWasPaced) {
  meter_.Add(100);
  meter_.Add(30, /*again=*/true);
  meter_.AddPaced(absl::Milliseconds(250));
  meter_.AddPaced(absl::Milliseconds(250));
  EXPECT_EQ(meter_.Use().bytes_sent_again(), 30u);
  EXPECT_EQ(meter_.bytes(), 130u);
  EXPECT_DOUBLE_EQ(meter_.Use().paced_seconds(), 0.5);
}

}  // namespace
}  // namespace causeway
