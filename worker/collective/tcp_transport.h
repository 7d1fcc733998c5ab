// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport between processes and hosts: a TCP connection between every two
// ranks (secure_socket.h), with consecutive messages as they are in memory. The
// thread that waits for a transfer moves the bytes of all transfers.
//
// A rank accepts only ranks that have read its random key in the rendezvous, so
// the connections are as safe as the rendezvous. After the handshakes they are
// in the clear, unless `encrypt` is set.
#ifndef WORKER_COLLECTIVE_TCP_TRANSPORT_H_
#define WORKER_COLLECTIVE_TCP_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

struct TcpTransportOptions {
  int rank = 0;
  int size = 1;
  // Distinguishes these connections from others among the same ranks.
  std::string name;
  // The name or address at which the other ranks reach this host. If empty, the
  // host's name.
  std::string host;
  // Encrypts the messages. The same on all ranks.
  bool encrypt = false;
  // The time to wait for the other ranks.
  absl::Duration connect_timeout = absl::Minutes(1);
  Clock now;
};

// Blocks until every rank has connected. Ranks put their addresses in
// `rendezvous` under options.name, which must be new there.
//   DEADLINE_EXCEEDED  Some rank did not come.
//   UNAVAILABLE        A connection or the rendezvous failed.
absl::StatusOr<std::unique_ptr<Transport>> ConnectTcp(
    const TcpTransportOptions& options, Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TCP_TRANSPORT_H_
