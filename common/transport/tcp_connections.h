// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reports what the kernel knows about the TCP connections of this process. gRPC
// does not expose its sockets, so they are found among the process's open
// files; they are only queried, never changed.
#ifndef COMMON_TRANSPORT_TCP_CONNECTIONS_H_
#define COMMON_TRANSPORT_TCP_CONNECTIONS_H_

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
  // The payload bytes that this end has sent more than once.
  uint64_t bytes_retransmitted = 0;
  // The payload bytes that this end has received, and that the peer has
  // confirmed, since the connection began.
  uint64_t bytes_received = 0;
  uint64_t bytes_acknowledged = 0;
  // The smoothed round-trip time, and the least one of the last minutes, which
  // waited in no queue; 0 if the kernel does not know that one.
  absl::Duration round_trip;
  absl::Duration least_round_trip;
};

// Returns the state of `file` if it is an established TCP connection. If the
// file was closed meanwhile and its number reused, the answer is about the new
// file.
std::optional<TcpConnection> AskTcpConnection(int file);
// Updates everything except the peer, by one system call. Returns false, and
// changes nothing, if the connection is no longer established.
bool UpdateTcpConnection(int file, TcpConnection& connection);

// Returns the established connections; none without Linux and /proc.
// Thread-safe; costs some microseconds for each open file.
std::vector<TcpConnection> OpenTcpConnections();

// Returns the peer that grpc::ServerContext::peer() or ClientContext::peer()
// names ("ipv4:10.0.0.1:80", "ipv6:%5B::1%5D:80") in the same form; empty if it
// is not TCP.
std::string PeerAddress(absl::string_view grpc_peer);

// Returns the part of a TcpConnection::peer to which limits by address apply:
// an IPv4 address, or the network of an IPv6 address, as "2001:db8::/64".
std::string NetworkOf(absl::string_view peer);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_TCP_CONNECTIONS_H_
