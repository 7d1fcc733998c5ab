// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/crew_watch.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rendezvous.h"

namespace causeway {
namespace {

constexpr int kProcesses = 3;
constexpr int kRanks = 2;

class CrewWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        server_, RendezvousServer::Start(
                     {.address = "127.0.0.1:0", .now = SteadyWallClock()}));
    for (int process = 0; process < kProcesses; ++process) {
      places_[process] = {.rank = process,
                          .size = kProcesses,
                          .table = RendezvousAt({.address = server_->address(),
                                                 .now = SteadyWallClock()})};
    }
  }

  // Returns a watch whose clock the test advances, at once or with every look.
  std::unique_ptr<CrewWatch> Watch() {
    return std::make_unique<CrewWatch>(
        kProcesses, kRanks, server_.get(), [this, clock = SteadyWallClock()] {
          seconds_ += step_;
          return clock() + absl::Seconds(seconds_.load());
        });
  }

  void AwaitKey(absl::string_view key) {
    EXPECT_OK(server_->table()->Get(key, absl::Seconds(60)).status());
  }
  // Waits until the process has asked some more.
  void AwaitAsked(absl::string_view key) {
    const auto calls = [&] {
      return server_->Asked(key)[std::string(key)].count;
    };
    const uint64_t before = calls();
    while (calls() < before + 2) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<RendezvousServer> server_;
  CrewPlace places_[kProcesses];
  std::atomic<int> seconds_ = 0;
  std::atomic<int> step_ = 0;
};

TEST_F(CrewWatchTest, AProcessThatIsLostBeforeItHasConnectedIsReported) {
  auto first = std::make_unique<PlaceHolder>(places_[1]);
  auto second = std::make_unique<PlaceHolder>(places_[2]);
  first->Connected();
  AwaitKey("connected/1");
  const auto watch = Watch();
  AwaitAsked("held/2");
  EXPECT_OK(CheckUnconnected(absl::ZeroDuration(), server_->table()));
  second = nullptr;
  step_ = 1;
  const absl::Status status =
      CheckUnconnected(absl::Seconds(60), server_->table());
  EXPECT_THAT(status, IsUnavailable("was assigned a rank, but was silent for"));
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->rank(), 2 * kRanks);
}

TEST_F(CrewWatchTest, ALeaderThatWasStoppedReportsNobody) {
  auto first = std::make_unique<PlaceHolder>(places_[1]);
  const PlaceHolder second(places_[2]);
  const auto watch = Watch();
  AwaitAsked("held/1");
  AwaitAsked("held/2");
  // The leader hears nothing while it is stopped, and for a moment afterwards.
  first = nullptr;
  absl::SleepFor(absl::Milliseconds(300));
  seconds_ += 3600;
  absl::SleepFor(absl::Milliseconds(500));
  first = std::make_unique<PlaceHolder>(places_[1]);
  EXPECT_OK(CheckUnconnected(absl::Seconds(1), server_->table()));
}

// A table that the network does not reach for a moment.
class AwayAtFirst : public LocalRendezvous {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    const bool is_away = key == "connected/1" && std::exchange(is_away_, false);
    return is_away ? absl::UnavailableError("no route to host")
                   : LocalRendezvous::Put(key, value);
  }

 private:
  bool is_away_ = true;
};

TEST_F(CrewWatchTest, AProcessThatIsConnectedSaysSoUntilItIsHeard) {
  auto table = std::make_unique<AwayAtFirst>();
  Rendezvous& leaders = *table;
  const CrewPlace place = {.rank = 1, .size = 2, .table = std::move(table)};
  PlaceHolder holder(place);
  holder.Connected();
  EXPECT_OK(leaders.Get("connected/1", absl::Seconds(60)));
}

TEST_F(CrewWatchTest, NobodyIsReportedOnceAllAreConnected) {
  for (const int process : {1, 2}) {
    PlaceHolder holder(places_[process]);
    holder.Connected();
    AwaitKey(absl::StrCat("connected/", process));
  }
  step_ = 3;
  const auto watch = Watch();
  EXPECT_OK(CheckUnconnected(absl::Seconds(1), server_->table()));
}

}  // namespace
}  // namespace causeway
