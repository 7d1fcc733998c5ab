// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The stream of orders that rank 0 gives to all ranks of an island. Every rank
// gets the same orders in the same sequence, and carries them out on two
// threads:
//
//   training   what happens to the parameters: steps, snapshots, updates
//   replica    what fragments' actors do beside it: encoding, decoding, anchors
//
// Each thread takes its orders as they come. Training waits for nothing else.
// An order for the replica waits until this rank has carried out all earlier
// orders for training except steps and validations. An order's data goes over
// the communicator of its thread.
//
//   Orders orders(communicators, period);
//   // Rank 0:
//   orders.Lead({.what = Order::What::kStep, .run_step = 1},
//               [&] { return Step(1); });
//   // The other ranks, until rank 0 destroys its object:
//   orders.Follow([&](const Order& order) { return CarryOut(order); });
//
// Ranks share their fate: the first failure of an order on any rank ends the
// orders of all.
#ifndef WORKER_REPLICA_ORDERS_H_
#define WORKER_REPLICA_ORDERS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/collective/communicator.h"

namespace causeway {

struct Order {
  enum class What : uint32_t {
    // The training thread follows these.
    // The parameters follow in a broadcast.
    kShareParameters,
    // The JoinResponse of rank 0 follows in a broadcast of `bytes`.
    kMakeReplica,
    kTakeSnapshot,
    kApply,
    kStep,
    // The parameters to measure follow in a broadcast.
    kValidate,
    kSave,
    // The state follows in broadcasts.
    kRestore,

    // The replica's thread follows these.
    kBeginContribution,
    // The encodings go to rank 0.
    kCollect,
    kEndContribution,
    kFinishUpdate,
    kReplaceAnchor,
    kReadAnchor,

    // Shows that rank 0 is alive.
    kWait,
    kEnd,
  };
  What what = What::kWait;
  // The fragment, in orders about one.
  uint32_t fragment = 0;
  // For kMakeReplica.
  uint64_t bytes = 0;
  // For kStep: the number of the step, and whether the ranks then compare their
  // observations of the communication.
  uint64_t run_step = 0;
  bool diagnose = false;
  // For kValidate: the most sequences, or 0.
  uint32_t max_sequences = 0;
  // For kApply.
  bool includes_island = false;
  // For kBeginContribution.
  double ecq_bits = 0;
  // For kEndContribution.
  bool merged = false;

  bool is_for_replica() const {
    return what >= What::kBeginContribution && what <= What::kReadAnchor;
  }
};

// Communicators among the same ranks, each used by one thread of a rank at a
// time. They share one table of failures (message_communicator.h).
struct RankCommunicators {
  std::unique_ptr<Communicator> orders;
  std::unique_ptr<Communicator> training;
  // Should have no time limit on operations, because a rank that is late in
  // training is late here, too. The other communicators find stuck or dead
  // ranks.
  std::unique_ptr<Communicator> replica;
};

// Lead and Fail are thread-safe, but only one thread at a time may give orders
// for training.
class Orders {
 public:
  // Rank 0 shows every `period` that it is alive, so that the other ranks keep
  // waiting. `period` is shorter than the communicator's time limit.
  // `on_failure`, if not null, is called once, from any thread, with the
  // failure that has ended the orders.
  Orders(RankCommunicators communicators, absl::Duration period,
         std::function<void(const absl::Status&)> on_failure = nullptr);
  // On rank 0: ends the orders of the other ranks, unless they have failed.
  ~Orders();

  int rank() const { return communicators_.orders->rank(); }
  int size() const { return communicators_.orders->size(); }
  Communicator* training() const { return communicators_.training.get(); }
  Communicator* replica() const { return communicators_.replica.get(); }

  // On rank 0: gives the order and does `work`, this rank's part of it. Orders
  // for the replica wait for one another. Returns the failure that has ended
  // the orders: of `work`, of a Communicator, or an earlier one. If it blames a
  // rank, it names the last order for training that all ranks got.
  absl::Status Lead(const Order& order, absl::FunctionRef<absl::Status()> work);

  // On the other ranks: calls `work` for each order, on the two threads, until
  // rank 0 ends (OK) or the orders fail.
  absl::Status Follow(absl::FunctionRef<absl::Status(const Order&)> work);

  // Ends the orders of all ranks with `status`, and returns the failure that
  // has ended them. An OK status changes nothing.
  absl::Status Fail(absl::Status status);

  // Returns the failure that has ended the orders, if any.
  absl::Status failure() const;

  // On the other ranks: returns whether rank 0 has given an order for training
  // that this rank has not begun.
  bool is_behind() const {
    absl::MutexLock lock(&mu_);
    return !training_.empty();
  }

 private:
  // An order, and the number of the last earlier order for training that
  // changes anything the replica sees.
  struct Task {
    Order order;
    uint64_t after = 0;
  };

  // Calls `work` for the order, with stamps (rank_stamps.h).
  absl::Status Stamped(const Order& order,
                       absl::FunctionRef<absl::Status()> work) const;
  // Broadcasts rank 0's order.
  absl::Status Exchange(Order& order);
  absl::Status Located(const absl::Status& status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // On rank 0: queues the order for a thread that only broadcasts, so that
  // training never waits for a fragment's thread, which has low priority.
  void Give(const Order& order);
  void GiveOrders(absl::Duration period);
  // On the other ranks: hand orders to the threads, and carry them out.
  absl::Status TakeOrders();
  void CarryOut(std::deque<Task>* tasks,
                absl::FunctionRef<absl::Status(const Order&)> work);
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ended_ || !failure_.ok();
  }

  const RankCommunicators communicators_;
  const std::function<void(const absl::Status&)> on_failure_;

  // On rank 0: held while an order for the replica is carried out.
  absl::Mutex replica_mu_;

  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  // Is true if the last order has come. Earlier orders are still carried out.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // On rank 0: the orders to broadcast, and how many were queued and broadcast.
  std::deque<Order> to_give_ ABSL_GUARDED_BY(mu_);
  uint64_t ordered_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t given_ ABSL_GUARDED_BY(mu_) = 0;
  // On rank 0: the last order for training that all ranks got, for people, and
  // the last step.
  std::string last_ ABSL_GUARDED_BY(mu_);
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  // On the other ranks: the orders to carry out, and the number of the last one
  // that training has carried out.
  std::deque<Task> training_ ABSL_GUARDED_BY(mu_);
  std::deque<Task> replica_ ABSL_GUARDED_BY(mu_);
  uint64_t trained_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread stream_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_ORDERS_H_
