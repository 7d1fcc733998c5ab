// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace causeway {

absl::StatusOr<Addresses> Resolve(absl::string_view address, int flags) {
  absl::string_view host = HostOf(address);
  const int port = PortOf(address);
  if (port < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address,
        "\" is not host:port, like 10.0.0.1:7070 or [fd00::1]:7070"));
  }
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const addrinfo hints = {.ai_flags = flags | AI_NUMERICSERV,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  errno = 0;
  const int error = getaddrinfo(std::string(host).c_str(),
                                absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    // The error alone may say that the host does not exist.
    const bool lacks_files = errno == EMFILE || errno == ENFILE;
    return absl::Status(
        lacks_files ? absl::StatusCode::kResourceExhausted
                    : absl::StatusCode::kUnavailable,
        absl::StrCat("cannot find the host of \"", address, "\": ",
                     lacks_files ? "too many open files (ulimit -n)"
                                 : gai_strerror(error)));
  }
  return Addresses(found);
}

std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof(in));
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(in.sin_port));
  }
  sockaddr_in6 in6;
  std::memcpy(&in6, &address, sizeof(in6));
  const uint16_t port = ntohs(in6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    inet_ntop(AF_INET, &in6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat(text, ":", port);
  }
  inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
  // A link-local address is complete only with the link.
  const uint32_t scope = in6.sin6_scope_id;
  return absl::StrCat("[", text, scope == 0 ? "" : absl::StrCat("%", scope),
                      "]:", port);
}

absl::string_view HostOf(absl::string_view address) {
  const size_t colon = address.rfind(':');
  // The colons in brackets are those of an IPv6 address.
  const size_t bracket = address.rfind(']');
  if (bracket != address.npos && colon < bracket) return address;
  return address.substr(0, colon);
}

int PortOf(absl::string_view address) {
  const absl::string_view host = HostOf(address);
  int port = 0;
  // An IPv6 address without brackets does not say where the port begins.
  const bool is_plain = host.find(':') == host.npos || host.front() == '[';
  return !host.empty() && is_plain && host.size() < address.size() &&
                 absl::SimpleAtoi(address.substr(host.size() + 1), &port) &&
                 port >= 0 && port <= 65535
             ? port
             : -1;
}

bool IsLoopback(absl::string_view address) {
  const std::string host(HostOf(address));
  in_addr number = {};
  return host == "localhost" || host == "[::1]" ||
         (inet_pton(AF_INET, host.c_str(), &number) == 1 &&
          ntohl(number.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET);
}

}  // namespace causeway
