// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/await_ranks.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/culprit.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"

namespace causeway {
namespace {

using testing::StartsWith;

constexpr int kRanks = 3;

void ForEachRank(const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Whether over Gloo, or between threads.
class AwaitRanksTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) {
      transports_ = MakeLocalTransports(kRanks);
      return;
    }
    transports_.resize(kRanks);
    ForEachRank([&](int rank) {
      auto connected = ConnectGloo(
          {.rank = rank, .size = kRanks, .host = "127.0.0.1"}, &rendezvous_);
      ASSERT_OK(connected);
      transports_[rank] = *std::move(connected);
    });
  }

  absl::Status Await(int rank, absl::Duration timeout) {
    return AwaitRanks(transports_[rank].get(), timeout, SteadyWallClock(),
                      &rendezvous_);
  }

  LocalRendezvous rendezvous_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

INSTANTIATE_TEST_SUITE_P(, AwaitRanksTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Gloo" : "Threads";
                         });

TEST_P(AwaitRanksTest, AllComeAndGoOnToTrain) {
  ForEachRank([&](int rank) {
    ASSERT_OK(Await(rank, absl::Minutes(1)));
    const auto communicator = MakeMessageCommunicator(
        {.timeout = absl::Minutes(1), .now = SteadyWallClock()},
        std::move(transports_[rank]), &rendezvous_);
    double sum = rank;
    ASSERT_OK(communicator->AllReduce(absl::MakeSpan(&sum, 1)).Wait());
    EXPECT_EQ(sum, 0 + 1 + 2);
  });
}

TEST_P(AwaitRanksTest, OneThatGivesUpIsToldWithItsReason) {
  ForEachRank([&](int rank) {
    if (rank == 2) {
      ReportOwnFailure(rank, absl::NotFoundError("there is no device cuda:2"),
                       &rendezvous_);
      transports_[rank]->Close();
      return;
    }
    EXPECT_THAT(Await(rank, absl::Minutes(1)),
                StatusIs(absl::StatusCode::kAborted,
                         "rank 2 has given up: there is no device cuda:2"));
  });
}

TEST_P(AwaitRanksTest, OneThatDoesNotComeIsNamed) {
  ForEachRank([&](int rank) {
    if (rank == 1) return;
    EXPECT_THAT(Await(rank, absl::Milliseconds(200)),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         StartsWith("rank 1 is stuck: ")));
  });
}

}  // namespace
}  // namespace causeway
