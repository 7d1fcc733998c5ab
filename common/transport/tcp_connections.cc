// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/tcp_connections.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/transport/socket_address.h"

namespace causeway {
namespace {

// TCP_CLOSE, which is not in <linux/tcp.h>.
constexpr int kClosed = 7;

}  // namespace

std::optional<TcpConnection> AskTcpConnection(int file) {
  sockaddr_storage address = {};
  socklen_t address_size = sizeof(address);
  if (getpeername(file, reinterpret_cast<sockaddr*>(&address), &address_size) !=
          0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    return std::nullopt;
  }
  TcpConnection connection;
  if (!UpdateTcpConnection(file, connection)) return std::nullopt;
  connection.peer = AddressText(address);
  return connection;
}

bool UpdateTcpConnection(int file, TcpConnection& connection) {
  // An older kernel fills only a part of the structure.
  tcp_info info = {};
  socklen_t info_size = sizeof(info);
  if (getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &info_size) != 0 ||
      info_size < offsetof(tcp_info, tcpi_rttvar) ||
      info.tcpi_state == kClosed) {
    return false;
  }
  connection.bytes_retransmitted = info.tcpi_bytes_retrans;
  connection.bytes_received = info.tcpi_bytes_received;
  connection.bytes_acknowledged = info.tcpi_bytes_acked;
  connection.round_trip = absl::Microseconds(info.tcpi_rtt);
  // Before the first measurement, the least one is the largest number.
  connection.least_round_trip =
      absl::Microseconds(std::min(info.tcpi_min_rtt, info.tcpi_rtt));
  return true;
}

std::vector<TcpConnection> OpenTcpConnections() {
  std::vector<TcpConnection> connections;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    int file;
    if (!absl::SimpleAtoi(entry->path().filename().string(), &file)) continue;
    if (std::optional<TcpConnection> connection = AskTcpConnection(file)) {
      connections.push_back(*std::move(connection));
    }
  }
  return connections;
}

std::string PeerAddress(absl::string_view grpc_peer) {
  if (!absl::ConsumePrefix(&grpc_peer, "ipv4:") &&
      !absl::ConsumePrefix(&grpc_peer, "ipv6:")) {
    return "";
  }
  // The percent sign stands before the scope of a link's address.
  return absl::StrReplaceAll(grpc_peer,
                             {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

std::string NetworkOf(absl::string_view peer) {
  const absl::string_view host = peer.substr(0, peer.rfind(':'));
  if (!absl::StartsWith(host, "[")) return std::string(host);
  in6_addr address = {};
  const absl::string_view number = host.substr(1, host.size() - 2);
  inet_pton(AF_INET6, std::string(number.substr(0, number.find('%'))).c_str(),
            &address);
  // The owner of one IPv6 address has a network of them.
  std::memset(&address.s6_addr[sizeof(address) / 2], 0, sizeof(address) / 2);
  char text[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

}  // namespace causeway
