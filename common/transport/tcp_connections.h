// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the kernel knows about the TCP connections of this process. gRPC keeps
// its sockets to itself, so they are looked for among the process's open files;
// they are asked, never changed.
#ifndef COMMON_TRANSPORT_TCP_CONNECTIONS_H_
#define COMMON_TRANSPORT_TCP_CONNECTIONS_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

struct TcpConnection {
  // The other end, as "address:port", an IPv6 address in brackets. IPv4 over an
  // IPv6 socket is written as IPv4.
  std::string peer;
  // Payload that this end has sent more than once.
  uint64_t bytes_retransmitted = 0;
  // Payload that has come, and payload that the other end has confirmed, since
  // the connection began.
  uint64_t bytes_received = 0;
  uint64_t bytes_acknowledged = 0;
  // Smoothed.
  absl::Duration round_trip;
};

// The established TCP connection that `file` is; nullopt if it is none. The
// file may have been closed, and its number given to another one, since it was
// seen: then the answer is about that one.
std::optional<TcpConnection> AskTcpConnection(int file);

// Those that are established now; empty where the system does not tell (it
// takes Linux and /proc). Thread-safe; costs some microseconds for each open
// file.
std::vector<TcpConnection> OpenTcpConnections();

// An IPv4 or IPv6 address as TcpConnection::peer has it.
std::string AddressText(const sockaddr_storage& address);

// The peer as grpc::ServerContext::peer() and ClientContext::peer() write it
// ("ipv4:10.0.0.1:80", "ipv6:%5B::1%5D:80") in the form above; empty for what
// is not TCP.
std::string PeerAddress(absl::string_view grpc_peer);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_TCP_CONNECTIONS_H_
