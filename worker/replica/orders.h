// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The stream of orders of an island: what rank 0 tells all ranks to do. Every
// rank sees the same orders one after the other, and carries them out on two
// threads:
//
//   training   what happens to the parameters: steps, snapshots, updates
//   replica    what links do beside it: encoding, decoding, anchors
//
// Each thread takes its orders as they come. Training waits for nothing else.
// An order of the replica waits until this rank has done all that training was
// told before it, but for steps. What an order moves between the ranks goes
// over the communicator of its thread.
//
//   rank 0                                  the others
//   Orders orders(communicators, period);   Orders orders(communicators,
//   period); orders.Lead({.what = Order::What::kStep, .run_step = 1},
//               [&] { return Step(1); });   orders.Follow([&](const Order& o) {
//   ...                                       return CarryOut(o);
//   // destroyed: the others may go           });
//
// Ranks share their fate: the first failure of any order, on any rank, ends the
// orders of all.
#ifndef WORKER_REPLICA_ORDERS_H_
#define WORKER_REPLICA_ORDERS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/collective/communicator.h"
#include "worker/replica/fragment_part.h"

namespace causeway {

struct Order {
  enum class What : uint32_t {
    // For the training thread.
    // The parameters follow in a broadcast.
    kShareParameters,
    // What rank 0 was told when it joined follows in a broadcast of `bytes`.
    kMakeReplica,
    kTakeSnapshot,
    kApply,
    kStep,
    kSave,
    // The state follows in broadcasts.
    kRestore,

    // For the replica's thread.
    kBeginContribution,
    // The encodings go to rank 0.
    kCollect,
    kEndContribution,
    kFinishUpdate,
    kReplaceAnchor,
    kSetAnchor,
    kReadAnchor,

    // Shows that rank 0 lives.
    kWait,
    kEnd,
  };
  What what = What::kWait;
  // Of orders about one fragment.
  uint32_t fragment = 0;
  // kMakeReplica.
  uint64_t bytes = 0;
  // kStep: the step that it makes complete, and whether the ranks compare
  // afterwards what they saw of their communication.
  uint64_t run_step = 0;
  bool diagnose = false;
  // kTakeSnapshot.
  bool eager = false;
  // kApply.
  UpdateUse use;
  // kBeginContribution: of the anchor.
  uint64_t version = 0;
  // kEndContribution.
  bool merged = false;

  bool is_for_replica() const {
    return what >= What::kBeginContribution && what <= What::kReadAnchor;
  }
};

// Between the same ranks; each is used by one thread of a rank at a time. They
// have one table of failures (message_communicator.h).
struct RankCommunicators {
  std::unique_ptr<Communicator> orders;
  std::unique_ptr<Communicator> training;
  // It should not limit the time of operations: a rank comes late to one where
  // training does. Who is stuck or dead is found by the other two.
  std::unique_ptr<Communicator> replica;
};

// Lead and Fail are thread-safe; orders for the training thread are given by
// one thread at a time.
class Orders {
 public:
  // Rank 0 shows each `period` that it lives, so that the others go on waiting:
  // more often than the communicator's time limit.
  Orders(RankCommunicators communicators, absl::Duration period);
  // Rank 0 lets the others go, unless they have failed.
  ~Orders();

  int rank() const { return communicators_.orders->rank(); }
  int size() const { return communicators_.orders->size(); }
  Communicator* training() const { return communicators_.training.get(); }
  Communicator* replica() const { return communicators_.replica.get(); }

  // On rank 0: gives the order and does `work`, this rank's part of it. Orders
  // for the replica's thread wait for one another. Returns the failure that has
  // ended the orders: that of `work`, a Communicator's or one before.
  absl::Status Lead(const Order& order, absl::FunctionRef<absl::Status()> work);

  // On the others: calls `work` for each order, on the two threads, until rank
  // 0 ends (OK) or the orders fail.
  absl::Status Follow(absl::FunctionRef<absl::Status(const Order&)> work);

  // Ends the orders of all ranks, which tell `status`, and returns the failure
  // that has ended them. OK changes nothing.
  absl::Status Fail(absl::Status status);

 private:
  // An order, and the last one of training before it that changes anything the
  // replica sees. Orders are counted.
  struct Task {
    Order order;
    uint64_t after = 0;
  };

  // Broadcasts rank 0's order.
  absl::Status Exchange(Order& order);
  // On rank 0: has the order broadcast by a thread that does nothing else, so
  // that training never waits for a link's thread, whose priority is low.
  void Give(const Order& order);
  void GiveOrders(absl::Duration period);
  // On the others: hand orders to the threads, and carry them out.
  absl::Status TakeOrders();
  void CarryOut(std::deque<Task>& tasks,
                absl::FunctionRef<absl::Status(const Order&)> work);
  absl::Status failure() const;
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ended_ || !failure_.ok();
  }

  const RankCommunicators communicators_;

  // On rank 0: held while an order for the replica is carried out.
  absl::Mutex replica_mu_;

  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  // No more orders come; what has come is still done.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // On rank 0: orders to be given, and how many came and were given.
  std::deque<Order> to_give_ ABSL_GUARDED_BY(mu_);
  uint64_t ordered_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t given_ ABSL_GUARDED_BY(mu_) = 0;
  // On the others: what is still to be done, and how far training has come.
  std::deque<Task> training_ ABSL_GUARDED_BY(mu_);
  std::deque<Task> replica_ ABSL_GUARDED_BY(mu_);
  uint64_t trained_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread stream_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_ORDERS_H_
