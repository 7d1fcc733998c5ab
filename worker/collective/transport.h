// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks of an island, in memory that the ranks give:
// nothing is buffered in between, so a message moves once both sides have named
// their memory. What collectives are made of (communicator.h).
//
//   auto sent = transport.Send(peer, tag, bytes);
//   auto received = transport.Receive(peer, tag, target);
//   RETURN_IF_ERROR(received->Wait(timeout));
//   RETURN_IF_ERROR(sent->Wait(timeout));
#ifndef WORKER_COLLECTIVE_TRANSPORT_H_
#define WORKER_COLLECTIVE_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace causeway {

// One message under way, from one side. The memory stays valid until the object
// is gone. Destruction before the end gives the message up, and with it
// possibly the connection. For one thread.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Returns when the memory may be used again.
  //   DEADLINE_EXCEEDED  the message has not gone through within `timeout`. The
  //                      transport may be of no use afterwards.
  //   UNAVAILABLE        the peer has closed its transport, or died.
  virtual absl::Status Wait(absl::Duration timeout) = 0;
};

// Send and Receive are for one thread; Close may come from any.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Start a message and return at once. `peer` is another rank. Both sides use
  // the same tag, once, and the same number of bytes, at least one.
  virtual std::unique_ptr<Transfer> Send(int peer, uint64_t tag,
                                         absl::Span<const char> bytes) = 0;
  virtual std::unique_ptr<Transfer> Receive(int peer, uint64_t tag,
                                            absl::Span<char> bytes) = 0;

  // Breaks the connections: transfers under way here and at the peers fail with
  // UNAVAILABLE, and so do later ones. Again is allowed.
  virtual void Close() = 0;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TRANSPORT_H_
