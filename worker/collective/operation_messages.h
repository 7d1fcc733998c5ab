// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The messages of a rank's operations, one operation at a time, with the
// operation's time limit, times, and the rank that it failed on.
//
//   messages.Begin(Collective::kBroadcast, timeout);
//   messages.ForPeers([&](int peer) { messages.Send(peer, 1, bytes); });
//   RETURN_IF_ERROR(messages.AwaitSends());
#ifndef WORKER_COLLECTIVE_OPERATION_MESSAGES_H_
#define WORKER_COLLECTIVE_OPERATION_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "worker/collective/communicator.h"
#include "worker/collective/time_limit.h"
#include "worker/collective/transport.h"

namespace causeway {

// Not thread-safe. The memory given to Send and Receive must stay valid until
// the next Begin, GiveUp or the object's destruction.
class OperationMessages {
 public:
  // `transport` outlives the object.
  OperationMessages(Transport* transport, Clock now);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  // Begins the next operation. All messages of the previous one have ended.
  void Begin(Collective collective, absl::Duration limit);
  // Returns the number of operations so far, including this one.
  uint64_t sequence() const { return times_.sequence; }
  // Returns the rest of the operation's time limit.
  absl::Duration Left() { return limit_.Left(); }
  // Begins another time limit, now.
  void set_limit(absl::Duration limit) { limit_ = TimeLimit(limit, &now_); }
  // The times, which Await, AwaitData and callers fill in.
  CollectiveTimes& times() { return times_; }
  CollectiveTimes::Peer& times(int peer) { return times_.peers[peer]; }
  // The rank that the operation failed on; this rank if none.
  int suspect() const { return suspect_; }
  void set_suspect(int rank) { suspect_ = rank; }

  // `message` is the message's number between the two ranks in this operation,
  // from 0. Empty memory is neither sent nor received; Receive then returns
  // null.
  void Send(int peer, int64_t message, absl::Span<const char> bytes);
  std::unique_ptr<Transfer> Receive(int peer, int64_t message,
                                    absl::Span<char> bytes);

  // Waits for `transfer` and adds the time to `waited`. A null transfer has
  // already ended.
  absl::Status Await(Transfer* transfer, int peer, absl::Duration& waited);
  // Like Await, for data: the time counts as the peer's transfer.
  absl::Status AwaitData(Transfer* transfer, int peer) {
    return Await(transfer, peer, times(peer).transfer);
  }
  absl::Status AwaitSends();
  // Gives up the messages that are still being sent.
  void GiveUp() { sends_.clear(); }

  // Calls body(peer) for the other ranks, in order, and stops at an error.
  template <typename Body>
  absl::Status ForEachPeer(Body body) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) RETURN_IF_ERROR(body(peer));
    }
    return absl::OkStatus();
  }
  // Like ForEachPeer, for a body that cannot fail.
  template <typename Body>
  void ForPeers(Body body) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) body(peer);
    }
  }

 private:
  struct Sent {
    int peer = 0;
    std::unique_ptr<Transfer> transfer;
  };

  uint64_t Tag(int64_t message) const;

  Transport* const transport_;
  const Clock now_;
  TimeLimit limit_;
  CollectiveTimes times_;
  int suspect_ = 0;
  std::vector<Sent> sends_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_OPERATION_MESSAGES_H_
