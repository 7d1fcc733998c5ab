// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport between processes and hosts: Gloo's TCP pairs, every rank
// connected to every other. Gloo moves the messages, but we have our own
// collectives (communicator.h), because Gloo's neither say which rank failed
// nor add in an order that is the same on every transport.
//
// Messages are not encrypted: the transport is for the network inside an
// island. Gloo writes to sockets that the other side may have closed, so
// connecting makes the process ignore SIGPIPE.
#ifndef WORKER_COLLECTIVE_GLOO_TRANSPORT_H_
#define WORKER_COLLECTIVE_GLOO_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

struct GlooTransportOptions {
  int rank = 0;
  int size = 1;
  // Tells these connections from others among the same ranks.
  std::string name;
  // The name or address at which the other ranks reach this host. If empty, the
  // host's name.
  std::string host;
  // The time to wait for the other ranks.
  absl::Duration connect_timeout = absl::Minutes(1);
};

// Blocks until every rank has connected. Ranks leave their addresses in
// `rendezvous` for good, under options.name, which must be new there.
//   DEADLINE_EXCEEDED  Some rank did not come.
//   UNAVAILABLE        A connection or the rendezvous failed.
absl::StatusOr<std::unique_ptr<Transport>> ConnectGloo(
    const GlooTransportOptions& options, Rendezvous* rendezvous);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GLOO_TRANSPORT_H_
