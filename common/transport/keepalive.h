// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keepalives of connections to a coordinator. A NAT or firewall may forget a
// connection, and a machine may go, without a word to the other end. A client
// that only waits for what the server sends would then wait for ever.
#ifndef COMMON_TRANSPORT_KEEPALIVE_H_
#define COMMON_TRANSPORT_KEEPALIVE_H_

#include "grpcpp/grpcpp.h"

namespace causeway {

// Adds keepalives to the arguments of a channel: it notices within 20 s that
// nothing comes through, also between calls. Coordinators allow these; other
// servers may take them for an attack.
inline void AddKeepalive(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace causeway

#endif  // COMMON_TRANSPORT_KEEPALIVE_H_
