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

  // Sends `count` chunks that take `seconds` each, one after the other, of
  // which buffers hold `ahead` beside the one on its way, and expects the rate
  // of 1000 from then on that two points are known.
  void SendSteadily(int count, double seconds, int ahead = 0,
                    bool known = false) {
    const absl::Time begin = now_;
    int added = 0;
    while (now_ < begin + absl::Seconds(count * seconds)) {
      const double passed =
          absl::FDivDuration(now_ - begin, absl::Seconds(seconds));
      while (added < count && added <= passed + ahead + 1e-9) {
        meter_.Add(static_cast<uint64_t>(1000 * seconds));
        ++added;
      }
      if (known || passed >= 2) ExpectRate();
      now_ += absl::Seconds(seconds / 10);
    }
  }
  void ExpectRate() const {
    EXPECT_NEAR(meter_.Use().bytes_per_second(), 1000, 50)
        << "at " << now_ - absl::UnixEpoch();
  }

  absl::Time now_ = absl::UnixEpoch();
  LinkMeter meter_{LinkMeter::Counts::kOutgoing, [this] { return now_; }};
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

// Two thirds of the time of a small upload may be its round trip.
TEST_F(LinkMeterTest, TheRoundTripOfAnUploadIsNoTimeOfItsBytes) {
  constexpr absl::Duration kRoundTrip = absl::Milliseconds(100);
  for (int i = 0; i < 5; ++i) {
    const LinkMeter::Transfer transfer(&meter_, kRoundTrip);
    meter_.Add(12'000);
    now_ += absl::Milliseconds(48) + kRoundTrip;
  }
  EXPECT_NEAR(8 * meter_.Use().bytes_per_second(), 2e6, 1);
  EXPECT_NEAR(meter_.Use().busy_seconds(), 0.24, 1e-9);
  {
    // The second one is sent while the first awaits its answer.
    const LinkMeter::Transfer first(&meter_, kRoundTrip);
    meter_.Add(12'000);
    now_ += absl::Milliseconds(48);
    const LinkMeter::Transfer second(&meter_, kRoundTrip);
    meter_.Add(12'000);
    now_ += absl::Milliseconds(48) + kRoundTrip;
  }
  EXPECT_NEAR(8 * meter_.Use().bytes_per_second(), 2e6, 1);
  // No upload takes no time at all.
  {
    const LinkMeter::Transfer transfer(&meter_, kRoundTrip);
    now_ += kRoundTrip;
  }
  EXPECT_NEAR(meter_.Use().busy_seconds(), 0.346, 1e-9);
}

TEST_F(LinkMeterTest, ALongTransferHasItsRateAtEachMoment) {
  for (const double chunk : {0.1, 1.0, 4.0, 15.0}) {
    {
      const LinkMeter::Transfer transfer(&meter_);
      SendSteadily(static_cast<int>(60 / chunk), chunk);
    }
    ExpectRate();
  }
}

TEST_F(LinkMeterTest, OneChunkAfterTheOtherHasTheRate) {
  for (int i = 0; i < 4; ++i) {
    {
      const LinkMeter::Transfer transfer(&meter_);
      SendSteadily(1, 12, /*ahead=*/0, /*known=*/i > 0);
    }
    ExpectRate();
    now_ += absl::Seconds(20);
  }
}

// Buffers of 5 s take the first chunks at once, and empty at the end.
TEST_F(LinkMeterTest, WhatBuffersHoldHasNotPassed) {
  for (int i = 0; i < 3; ++i) {
    std::optional<LinkMeter::Transfer> transfer(&meter_);
    SendSteadily(300, 0.1, /*ahead=*/50);
    ExpectRate();
    transfer.reset();
    ExpectRate();
  }
}

TEST_F(LinkMeterTest, TransfersThatOverlapHaveTheRate) {
  std::optional<LinkMeter::Transfer> first(&meter_);
  SendSteadily(200, 0.1);
  std::optional<LinkMeter::Transfer> second(&meter_);
  SendSteadily(10, 0.1, /*ahead=*/0, /*known=*/true);
  first.reset();
  SendSteadily(200, 0.1, /*ahead=*/0, /*known=*/true);
  second.reset();
  ExpectRate();
}

TEST_F(LinkMeterTest, ALongStallLowersTheRate) {
  const LinkMeter::Transfer transfer(&meter_);
  Send(1000, 1000);
  now_ += absl::Seconds(90);
  EXPECT_LT(meter_.Use().bytes_per_second(), 120);
}

TEST_F(LinkMeterTest, WhatArrivesHasItsRateBetweenChunks) {
  LinkMeter meter(LinkMeter::Counts::kArrived, [this] { return now_; });
  std::optional<LinkMeter::Transfer> transfer(&meter);
  for (int i = 0; i < 50; ++i) {
    now_ += absl::Seconds(1);
    if (i > 10) EXPECT_NEAR(meter.Use().bytes_per_second(), 1000, 1e-6);
    if (i % 5 == 4) meter.Add(5000);
  }
  transfer.reset();
  EXPECT_NEAR(meter.Use().bytes_per_second(), 1000, 1e-6);
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

TEST_F(LinkMeterTest, BytesOutsideOfTransfersHaveNoRate) {
  meter_.Add(1'000'000);
  EXPECT_EQ(meter_.Use().bytes_per_second(), 0);
  {
    const LinkMeter::Transfer transfer(&meter_);
    Send(2, 1000);
    EXPECT_DOUBLE_EQ(meter_.Use().bytes_per_second(), 1000);
  }
  EXPECT_DOUBLE_EQ(meter_.Use().bytes_per_second(), 1000);
  EXPECT_EQ(meter_.bytes(), 1'002'000u);
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
