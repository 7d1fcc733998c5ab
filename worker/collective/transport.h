// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of an island, for collectives (communicator.h).
//
//   auto sent = transport.Send(peer, tag, bytes);
//   auto received = transport.Receive(peer, tag, target);
//   RETURN_IF_ERROR(received->Wait(limit));
//   RETURN_IF_ERROR(sent->Wait(limit));
#ifndef WORKER_COLLECTIVE_TRANSPORT_H_
#define WORKER_COLLECTIVE_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/collective/time_limit.h"

namespace causeway {

// One side of a message in transit. The memory must stay valid until the object
// is destroyed. Destruction before the end gives up the message, and possibly
// the connection. A transfer must not outlive its transport. Not thread-safe.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Returns when the memory may be used again.
  //   DEADLINE_EXCEEDED  The message has not gone through within
  //                      `limit`, or the network has not reached the peer
  //                      for kLongestSilence. The transport may be unusable
  //                      afterwards.
  //   UNAVAILABLE        The peer has closed its transport, or died.
  virtual absl::Status Wait(TimeLimit& limit) = 0;
};

// Nothing waits for a peer that the network has not reached for this long. A
// break of half the time does no harm: TCP resends what was lost, at intervals
// that double.
inline constexpr absl::Duration kLongestSilence = absl::Seconds(10);

// One thread calls Send and Receive, and waits for the transfers; Close is
// thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Start a message and return at once. `peer` is another rank. Both sides
  // start the messages from one to the other in the same order, each with the
  // same unique tag and the same number of bytes, at least one.
  virtual std::unique_ptr<Transfer> Send(int peer, uint64_t tag,
                                         absl::Span<const char> bytes) = 0;
  virtual std::unique_ptr<Transfer> Receive(int peer, uint64_t tag,
                                            absl::Span<char> bytes) = 0;

  // Returns the ranks that the network has not reached for some seconds,
  // whether their processes run or not.
  virtual std::vector<int> Unreached() const { return {}; }

  // Breaks the connections: current and later transfers, here and at the peers,
  // fail with UNAVAILABLE. May be called again.
  virtual void Close() = 0;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TRANSPORT_H_
