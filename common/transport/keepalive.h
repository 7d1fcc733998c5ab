// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arguments of lasting connections to a coordinator, which notice that the
// other end is gone, and find it again.
#ifndef COMMON_TRANSPORT_KEEPALIVE_H_
#define COMMON_TRANSPORT_KEEPALIVE_H_

#include "grpcpp/grpcpp.h"

namespace causeway {

// Adds keepalives to the arguments of a channel: it notices within 20 s that
// nothing comes through, also between calls. Otherwise, a client that only
// waits for the server would wait forever after a NAT or firewall forgets the
// connection, or a machine is lost. Coordinators allow keepalives; other
// servers may take them for an attack.
inline void AddKeepalive(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// Returns the arguments of a channel to a coordinator or a follower. It has
// connections of its own, and tries again at the latest 2 s after a failure.
inline grpc::ChannelArguments LastingChannelArguments() {
  grpc::ChannelArguments arguments;
  // By default gRPC shares connections between channels to the same address. A
  // new coordinator at the address of a lost one should be dialled at once, and
  // not after the back-off of a connection that has failed before.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  AddKeepalive(arguments);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // Despite its name this also limits the time of a try, which takes several
  // round trips with HTTP/2's settings and TLS.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  return arguments;
}

}  // namespace causeway

#endif  // COMMON_TRANSPORT_KEEPALIVE_H_
