// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/orders.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/os/thread_priority.h"
#include "common/restated.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {
namespace {

// Describes an order for training to people.
std::string Describe(const Order& order, uint64_t step) {
  const auto of_fragment = [&](const char* what) {
    return absl::StrCat(what, " of fragment ", order.fragment, " at step ",
                        step);
  };
  switch (order.what) {
    case Order::What::kShareParameters:
      return "the loading of the parameters";
    case Order::What::kTakeSnapshot:
      return of_fragment("the snapshot");
    case Order::What::kApply:
      return of_fragment("the update");
    case Order::What::kStep:
      return absl::StrCat("step ", step);
    case Order::What::kValidate:
      return absl::StrCat("the validation at step ", step);
    case Order::What::kSave:
      return absl::StrCat("the saving at step ", step);
    default:
      return "the start";
  }
}

RankSection SectionOf(const Order& order) {
  switch (order.what) {
    case Order::What::kTakeSnapshot:
      return RankSection::kSnapshot;
    case Order::What::kApply:
      return RankSection::kApply;
    case Order::What::kStep:
      return RankSection::kStep;
    case Order::What::kValidate:
      return RankSection::kValidation;
    default:
      return order.is_for_replica() ? RankSection::kEncoding
                                    : RankSection::kState;
  }
}

}  // namespace

Orders::Orders(RankCommunicators communicators, absl::Duration period,
               std::function<void(const absl::Status&)> on_failure)
    : communicators_(std::move(communicators)),
      on_failure_(std::move(on_failure)) {
  if (rank() == 0 && size() > 1) {
    stream_ = std::thread([this, period] { GiveOrders(period); });
  }
}

Orders::~Orders() {
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  if (!stream_.joinable()) return;
  stream_.join();
  LOG_IF(WARNING, !failure().ok()) << "the island's ranks did not end together";
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
    // This rank's own failure says more than another rank's abort.
    if (is_first || (absl::IsAborted(failure_) && !absl::IsAborted(status))) {
      failure_ = Located(status);
    }
    status = failure_;
  }
  if (is_first) {
    communicators_.orders->Abort(status);
    communicators_.training->Abort(status);
    communicators_.replica->Abort(status);
    if (on_failure_ != nullptr) on_failure_(status);
  }
  return status;
}

absl::Status Orders::Located(const absl::Status& status) const {
  if (last_.empty() || !RankTroubleOf(status).has_value()) return status;
  return Restated(
      status, status.code(),
      absl::StrCat(status.message(),
                   "; the last order that all ranks received was ", last_));
}

absl::Status Orders::Stamped(const Order& order,
                             absl::FunctionRef<absl::Status()> work) const {
  const RankSectionScope stamp(
      rank(), order.is_for_replica() ? RankLane::kReplica : RankLane::kTraining,
      SectionOf(order));
  const absl::Status status = work();
  if (order.what == Order::What::kApply && order.fragment == 0) {
    StampRound(rank());
  }
  return status;
}

absl::Status Orders::Exchange(Order& order) {
  return communicators_.orders->Broadcast(
      0, absl::MakeSpan(reinterpret_cast<char*>(&order), sizeof(order)));
}

absl::Status Orders::Lead(const Order& order,
                          absl::FunctionRef<absl::Status()> work) {
  absl::MutexLockMaybe lock(order.is_for_replica() ? &replica_mu_ : nullptr);
  if (size() > 1) Give(order);
  RETURN_IF_ERROR(failure());
  return Fail(Stamped(order, work));
}

void Orders::Give(const Order& order) {
  absl::MutexLock lock(&mu_);
  to_give_.push_back(order);
  const uint64_t number = ++ordered_;
  const auto given = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return given_ >= number || !failure_.ok();
  };
  mu_.Await(absl::Condition(&given));
}

void Orders::GiveOrders(absl::Duration period) {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !to_give_.empty() || is_over();
  };
  bool goes_on = true;
  while (goes_on) {
    Order order;
    bool is_asked_for = false;
    {
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&woken), period);
      if (!failure_.ok()) return;
      is_asked_for = !to_give_.empty();
      if (is_asked_for) {
        order = to_give_.front();
        to_give_.pop_front();
      } else if (ended_) {
        order.what = Order::What::kEnd;
      }
    }
    goes_on = Fail(Exchange(order)).ok() && order.what != Order::What::kEnd;
    absl::MutexLock lock(&mu_);
    if (!is_asked_for) continue;
    ++given_;
    if (!goes_on || order.is_for_replica()) continue;
    if (order.what == Order::What::kStep) step_ = order.run_step;
    last_ = Describe(order, step_);
  }
}

absl::Status Orders::Follow(
    absl::FunctionRef<absl::Status(const Order&)> work) {
  CHECK_GT(rank(), 0);
  std::thread training([&] { CarryOut(&training_, work); });
  std::thread replica([&] {
    const absl::Status lowered = LowerThreadPriority();
    LOG_IF(WARNING, !lowered.ok())
        << "rank " << rank() << " encodes and decodes at the same priority as "
        << "it trains: " << lowered.message();
    CarryOut(&replica_, work);
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
      if (order.what != Order::What::kStep &&
          order.what != Order::What::kValidate) {
        after = number;
      }
      training_.push_back({order, after});
    }
  }
}

void Orders::CarryOut(std::deque<Task>* tasks,
                      absl::FunctionRef<absl::Status(const Order&)> work) {
  const bool is_replica = tasks == &replica_;
  const auto next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (tasks->empty()) return is_over();
    return !failure_.ok() || !is_replica || tasks->front().after <= trained_;
  };
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&next));
      if (tasks->empty() || !failure_.ok()) return;
      task = tasks->front();
      tasks->pop_front();
    }
    const absl::Status done =
        Stamped(task.order, [&] { return work(task.order); });
    if (!Fail(done).ok()) return;
    if (is_replica) continue;
    absl::MutexLock lock(&mu_);
    trained_ = task.after;
  }
}

}  // namespace causeway
