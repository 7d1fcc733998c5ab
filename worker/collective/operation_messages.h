// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The messages of a rank's operations, one operation at a time: its time limit,
// where its time went, and whom it failed on.
//
//   messages.Begin(Collective::kBroadcast, deadline);
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
#include "worker/collective/transport.h"

namespace causeway {

// For one thread. What Send and Receive are given stays valid until the next
// Begin, GiveUp or the object's end.
class OperationMessages {
 public:
  // `transport` outlives the object.
  OperationMessages(Transport* transport, Clock now);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  // The next operation. No message of the one before is under way.
  void Begin(Collective collective, absl::Time deadline);
  // Operations so far, this one included.
  uint64_t sequence() const { return times_.sequence; }
  absl::Time deadline() const { return deadline_; }
  void set_deadline(absl::Time deadline) { deadline_ = deadline; }
  // What is filled in by Await and AwaitData, and by others.
  CollectiveTimes& times() { return times_; }
  CollectiveTimes::Peer& times(int peer) { return times_.peers[peer]; }
  // Whom the operation failed on; the own rank if on nobody.
  int suspect() const { return suspect_; }
  void set_suspect(int rank) { suspect_ = rank; }

  // `message` is the message's number between the two ranks in this operation,
  // from 0. Nothing is sent for empty memory, nor received: then Receive is
  // null.
  void Send(int peer, int64_t message, absl::Span<const char> bytes);
  std::unique_ptr<Transfer> Receive(int peer, int64_t message,
                                    absl::Span<char> bytes);

  // Adds how long it waited to `waited`. Null transfers have ended.
  absl::Status Await(Transfer* transfer, int peer, absl::Duration& waited);
  // The same for data: the time counts as the peer's transfer.
  absl::Status AwaitData(Transfer* transfer, int peer) {
    return Await(transfer, peer, times(peer).transfer);
  }
  absl::Status AwaitSends();
  // Of what is still being sent.
  void GiveUp() { sends_.clear(); }

  // Calls body(peer) for the other ranks, in order; stops at an error.
  template <typename Body>
  absl::Status ForEachPeer(Body body) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) RETURN_IF_ERROR(body(peer));
    }
    return absl::OkStatus();
  }
  // The same for what cannot fail.
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
  absl::Time deadline_;
  CollectiveTimes times_;
  int suspect_ = 0;
  std::vector<Sent> sends_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_OPERATION_MESSAGES_H_
