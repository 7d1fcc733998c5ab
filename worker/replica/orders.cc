// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/orders.h"

#include <utility>

#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/thread_priority.h"
#include "glog/logging.h"

namespace causeway {

Orders::Orders(RankCommunicators communicators, absl::Duration period)
    : communicators_(std::move(communicators)) {
  if (rank() == 0 && size() > 1) {
    pulse_ = std::thread([this, period] { ShowLife(period); });
  }
}

Orders::~Orders() {
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  if (pulse_.joinable()) pulse_.join();
  if (rank() > 0 || !failure().ok()) return;
  Order end = {.what = Order::What::kEnd};
  const absl::Status status = Exchange(end);
  LOG_IF(WARNING, !status.ok())
      << "the island's ranks did not end together: " << status.message();
}

absl::Status Orders::failure() const {
  absl::MutexLock lock(&mu_);
  return failure_;
}

absl::Status Orders::Fail(absl::Status status) {
  if (status.ok()) return status;
  bool is_first = false;
  {
    absl::MutexLock lock(&mu_);
    is_first = failure_.ok();
    // That another rank has given up says less than what this one sees.
    if (is_first || (absl::IsAborted(failure_) && !absl::IsAborted(status))) {
      failure_ = std::move(status);
    }
    status = failure_;
  }
  if (is_first) {
    communicators_.orders->Abort(status);
    communicators_.training->Abort(status);
    communicators_.replica->Abort(status);
  }
  return status;
}

absl::Status Orders::Exchange(Order& order) {
  if (size() == 1) return absl::OkStatus();
  absl::MutexLock lock(&stream_mu_);
  return communicators_.orders
      ->Broadcast(
          0, absl::MakeSpan(reinterpret_cast<char*>(&order), sizeof(order)))
      .Wait();
}

absl::Status Orders::Lead(Order order, absl::FunctionRef<absl::Status()> work) {
  absl::MutexLockMaybe lock(order.is_for_replica() ? &replica_mu_ : nullptr);
  RETURN_IF_ERROR(failure());
  absl::Status status = Exchange(order);
  if (status.ok()) status = work();
  return Fail(std::move(status));
}

void Orders::ShowLife(absl::Duration period) {
  absl::MutexLock lock(&mu_);
  while (
      !mu_.AwaitWithTimeout(absl::Condition(this, &Orders::is_over), period)) {
    mu_.Unlock();
    Order wait;
    Fail(Exchange(wait)).IgnoreError();
    mu_.Lock();
  }
}

absl::Status Orders::Follow(
    absl::FunctionRef<absl::Status(const Order&)> work) {
  CHECK_GT(rank(), 0);
  std::thread training([&] { CarryOut(training_, work); });
  std::thread replica([&] {
    const absl::Status lowered = LowerThreadPriority();
    LOG_IF(WARNING, !lowered.ok())
        << "rank " << rank() << " encodes and decodes at the same priority as "
        << "it trains: " << lowered.message();
    CarryOut(replica_, work);
  });
  Fail(TakeOrders()).IgnoreError();
  training.join();
  replica.join();
  return failure();
}

absl::Status Orders::TakeOrders() {
  uint64_t after = 0;
  for (uint64_t number = 1;; ++number) {
    Order order;
    RETURN_IF_ERROR(Exchange(order));
    absl::MutexLock lock(&mu_);
    if (order.what == Order::What::kEnd) {
      ended_ = true;
      return absl::OkStatus();
    }
    if (order.what == Order::What::kWait) continue;
    if (order.is_for_replica()) {
      replica_.push_back({order, after});
    } else {
      if (order.what != Order::What::kStep) after = number;
      training_.push_back({order, after});
    }
  }
}

void Orders::CarryOut(std::deque<Task>& tasks,
                      absl::FunctionRef<absl::Status(const Order&)> work) {
  const bool is_replica = &tasks == &replica_;
  const auto next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (tasks.empty()) return is_over();
    return !failure_.ok() || !is_replica || tasks.front().after <= trained_;
  };
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&next));
      if (tasks.empty() || !failure_.ok()) return;
      task = tasks.front();
      tasks.pop_front();
    }
    if (!Fail(work(task.order)).ok()) return;
    if (is_replica) continue;
    absl::MutexLock lock(&mu_);
    trained_ = task.after;
  }
}

}  // namespace causeway
