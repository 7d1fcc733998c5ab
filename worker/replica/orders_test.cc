// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/orders.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using What = Order::What;

// This is enough for everything that need not wait.
constexpr absl::Duration kNotYet = absl::Milliseconds(100);

absl::Status Nothing() { return absl::OkStatus(); }

// An island whose ranks carry out orders with a function of the test.
class OrdersTest : public testing::Test {
 protected:
  using Work = std::function<absl::Status(int rank, const Order&)>;

  ~OrdersTest() override { End(); }

  void Start(int size, Work work) {
    for (RankCommunicators& communicators :
         LocalCommunicators(size, &rendezvous_)) {
      orders_.push_back(
          std::make_unique<Orders>(std::move(communicators), absl::Seconds(1)));
    }
    statuses_.resize(size);
    for (int rank = 1; rank < size; ++rank) {
      followers_.emplace_back([this, rank, work] {
        statuses_[rank] = orders_[rank]->Follow(
            [&](const Order& order) { return work(rank, order); });
      });
    }
  }

  // Makes rank 0 end the orders of the other ranks.
  void End() {
    if (!orders_.empty()) orders_[0].reset();
    Join();
    orders_.clear();
  }
  void Join() {
    for (std::thread& follower : followers_) follower.join();
    followers_.clear();
  }

  absl::Status Lead(const Order& order) {
    return orders_[0]->Lead(order, Nothing);
  }

  LocalRendezvous rendezvous_;
  std::vector<std::unique_ptr<Orders>> orders_;
  std::vector<std::thread> followers_;
  // The results of Follow, by rank.
  std::vector<absl::Status> statuses_;
};

TEST_F(OrdersTest, EveryRankCarriesThemOutInOrder) {
  absl::Mutex mu;
  std::vector<std::vector<uint64_t>> steps(3);
  std::vector<std::vector<uint32_t>> fragments(3);
  Start(3, [&](int rank, const Order& order) {
    absl::MutexLock lock(&mu);
    if (order.is_for_replica()) {
      fragments[rank].push_back(order.fragment);
    } else {
      steps[rank].push_back(order.run_step);
    }
    return absl::OkStatus();
  });
  for (uint32_t i = 1; i <= 3; ++i) {
    ASSERT_OK(Lead({.what = What::kStep, .run_step = i}));
    ASSERT_OK(Lead({.what = What::kBeginContribution, .fragment = 10 * i}));
  }
  // The ranks carry out all orders before they end.
  End();
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_OK(statuses_[rank]);
    EXPECT_THAT(steps[rank], ElementsAre(1, 2, 3));
    EXPECT_THAT(fragments[rank], ElementsAre(10, 20, 30));
  }
}

TEST_F(OrdersTest, TrainingGoesOnBesideTheReplica) {
  absl::Notification trained;
  Start(2, [&](int, const Order& order) {
    if (order.is_for_replica()) trained.WaitForNotification();
    if (order.run_step == 5) trained.Notify();
    return absl::OkStatus();
  });
  ASSERT_OK(Lead({.what = What::kFinishUpdate}));
  ASSERT_OK(Lead({.what = What::kTakeSnapshot}));
  ASSERT_OK(Lead({.what = What::kStep, .run_step = 5}));
  trained.WaitForNotification();
  End();
}

TEST_F(OrdersTest, TheReplicaWaitsForEarlierOrdersForTraining) {
  absl::Notification ordered;
  absl::Notification begun;
  Start(2, [&](int, const Order& order) {
    if (order.what == What::kBeginContribution) begun.Notify();
    if (order.what == What::kTakeSnapshot) {
      ordered.WaitForNotification();
      EXPECT_FALSE(begun.WaitForNotificationWithTimeout(kNotYet));
    }
    return absl::OkStatus();
  });
  ASSERT_OK(Lead({.what = What::kTakeSnapshot}));
  ASSERT_OK(Lead({.what = What::kBeginContribution}));
  ordered.Notify();
  begun.WaitForNotification();
  End();
}

TEST_F(OrdersTest, TheReplicaDoesNotWaitForSteps) {
  absl::Notification encoded;
  Start(2, [&](int, const Order& order) {
    if (order.what == What::kStep) encoded.WaitForNotification();
    if (order.what == What::kBeginContribution) encoded.Notify();
    return absl::OkStatus();
  });
  ASSERT_OK(Lead({.what = What::kTakeSnapshot}));
  ASSERT_OK(Lead({.what = What::kStep}));
  ASSERT_OK(Lead({.what = What::kBeginContribution}));
  encoded.WaitForNotification();
  End();
}

// The order may be for either thread.
TEST_F(OrdersTest, ARankThatFailsEndsAllWithItsReason) {
  for (const What what : {What::kSave, What::kReadAnchor}) {
    Start(3, [&](int rank, const Order& order) {
      return rank == 2 && order.what == what ? absl::DataLossError("bad sector")
                                             : absl::OkStatus();
    });
    absl::Status status = Lead({.what = what});
    // Rank 0's own part cannot fail.
    while (status.ok()) status = Lead({.what = What::kStep});
    EXPECT_THAT(status, IsAborted("rank 2 has given up: bad sector"));
    EXPECT_EQ(Lead({.what = What::kStep}), status) << "and so it stays";
    End();
    EXPECT_THAT(statuses_[1], IsAborted("rank 2 has given up"));
    EXPECT_THAT(statuses_[2],
                StatusIs(absl::StatusCode::kDataLoss, "bad sector"));
  }
}

TEST_F(OrdersTest, Rank0sFailureIsToldToTheOthers) {
  Start(2, [](int, const Order&) { return absl::OkStatus(); });
  const absl::Status failed = orders_[0]->Lead({.what = What::kStep}, [] {
    return absl::OutOfRangeError("training diverged");
  });
  EXPECT_THAT(failed,
              StatusIs(absl::StatusCode::kOutOfRange, "training diverged"));
  End();
  EXPECT_THAT(statuses_[1],
              IsAborted("rank 0 has given up: training diverged"));
}

// Divergence is the reason, even if the rank first learned that another one has
// given up.
TEST_F(OrdersTest, ARanksOwnFailureReplacesTheAbortOfAnother) {
  Start(1, nullptr);
  Orders& orders = *orders_[0];
  EXPECT_EQ(orders.Fail(absl::AbortedError("rank 1 has given up")),
            absl::AbortedError("rank 1 has given up"));
  EXPECT_EQ(orders.Fail(absl::OutOfRangeError("diverged")),
            absl::OutOfRangeError("diverged"));
  EXPECT_EQ(orders.Fail(absl::UnavailableError("later")),
            absl::OutOfRangeError("diverged"));
  EXPECT_EQ(Lead({.what = What::kStep}), absl::OutOfRangeError("diverged"));
}

TEST_F(OrdersTest, AFailureSaysWhichOrderAllRanksHaveGot) {
  auto communicators = LocalCommunicators(2, &rendezvous_);
  std::vector<absl::Status> told;
  auto orders = std::make_unique<Orders>(
      std::move(communicators[0]), absl::Seconds(1),
      [&](const absl::Status& failure) { told.push_back(failure); });
  Orders follower(std::move(communicators[1]), absl::Seconds(1));
  std::thread following([&] {
    follower.Follow([](const Order&) { return Nothing(); }).IgnoreError();
  });
  ASSERT_OK(orders->Lead({.what = What::kStep, .run_step = 7}, Nothing));
  ASSERT_OK(orders->Lead({.what = What::kCollect}, Nothing));
  const absl::Status failed =
      orders->Lead({.what = What::kApply, .fragment = 2}, [] {
        return BlameRank(1, absl::StatusCode::kDeadlineExceeded, "silent");
      });
  EXPECT_THAT(failed,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank 1 is stuck: silent; the last order that all ranks "
                       "received was the update of fragment 2 at step 7"));
  EXPECT_TRUE(RankTroubleOf(failed).has_value());
  EXPECT_EQ(orders->Lead({.what = What::kStep}, Nothing), failed);
  EXPECT_THAT(told, ElementsAre(failed));
  orders.reset();
  following.join();
}

// The actors of several fragments give orders at the same time.
TEST_F(OrdersTest, OrdersForTheReplicaAreDoneOneAtATime) {
  Start(2, [](int, const Order&) { return absl::OkStatus(); });
  absl::Notification first;
  absl::Notification second;
  std::thread actor([&] {
    first.WaitForNotification();
    EXPECT_OK(orders_[0]->Lead({.what = What::kCollect}, [&] {
      second.Notify();
      return absl::OkStatus();
    }));
  });
  EXPECT_OK(orders_[0]->Lead({.what = What::kReadAnchor}, [&] {
    first.Notify();
    EXPECT_FALSE(second.WaitForNotificationWithTimeout(kNotYet));
    return absl::OkStatus();
  }));
  actor.join();
}

// Rank 1 waits for rank 0 in an operation, with a limit of minutes.
TEST_F(OrdersTest, AFailureEndsOperationsUnderWay) {
  for (const What what : {What::kStep, What::kReplaceAnchor}) {
    absl::Notification begun;
    Start(2, [&](int rank, const Order& order) {
      begun.Notify();
      Communicator* const communicator = order.is_for_replica()
                                             ? orders_[rank]->replica()
                                             : orders_[rank]->training();
      return communicator->AllToAll({}, {});
    });
    ASSERT_OK(Lead({.what = what}));
    begun.WaitForNotification();
    orders_[0]->Fail(absl::CancelledError("told to stop")).IgnoreError();
    Join();
    EXPECT_THAT(statuses_[1], IsAborted("told to stop"));
    End();
  }
}

}  // namespace
}  // namespace causeway
