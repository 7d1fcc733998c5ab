// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"

namespace causeway {
namespace {

// The longest time that sent bytes may stay unacknowledged.
constexpr int kSentTimeoutMilliseconds = 10'000;

void SetOption(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

uint16_t PortOf(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return 0;
  }
  // The port is at the same place in IPv4 and IPv6 addresses.
  sockaddr_in in;
  std::memcpy(&in, &bound, sizeof(in));
  return ntohs(in.sin_port);
}

// Returns a socket that listens on `address`, or -1 with errno. Accepted
// sockets inherit its options.
int ListenOn(const addrinfo& address) {
  const int file =
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file < 0) return -1;
  SetOption(file, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(file, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(file, IPPROTO_TCP, TCP_USER_TIMEOUT, kSentTimeoutMilliseconds);
  if (address.ai_family == AF_INET6) {
    SetOption(file, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  }
  if (bind(file, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(file, SOMAXCONN) == 0) {
    return file;
  }
  const int error = errno;
  close(file);
  errno = error;
  return -1;
}

// Returns the addresses that mean all of this machine, one for each family.
absl::StatusOr<Addresses> EveryAddress(const std::string& port) {
  const addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(nullptr, port.c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  return Addresses(found);
}

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::Open(
    const std::string& address) {
  ListeningSockets sockets;
  ASSIGN_OR_RETURN(Addresses addresses, Resolve(address, AI_PASSIVE));
  const absl::string_view host = HostOf(address);
  if (host == "0.0.0.0" || host == "[::]") {
    ASSIGN_OR_RETURN(addresses, EveryAddress(address.substr(host.size() + 1)));
  }
  int error = 0;
  for (addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    // All sockets use the same free port; see PortOf.
    sockaddr_in in;
    std::memcpy(&in, one->ai_addr, sizeof(in));
    if (in.sin_port == 0) in.sin_port = htons(sockets.port_);
    std::memcpy(one->ai_addr, &in, sizeof(in));
    const int file = ListenOn(*one);
    if (file >= 0) {
      sockets.files_.push_back(file);
      sockets.port_ = PortOf(file);
    } else if (error == 0 ||
               (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) {
      error = errno;
    }
  }
  const bool is_missing_family =
      error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
  if (sockets.files_.empty() || (error != 0 && !is_missing_family)) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on \"", address, "\": ", std::strerror(error),
        "; choose another address (port 0 takes a free one)"));
  }
  return sockets;
}

ListeningSockets::ListeningSockets(ListeningSockets&& other) noexcept {
  *this = std::move(other);
}

ListeningSockets& ListeningSockets::operator=(
    ListeningSockets&& other) noexcept {
  files_.swap(other.files_);
  std::swap(port_, other.port_);
  return *this;
}

ListeningSockets::~ListeningSockets() {
  for (const int file : files_) close(file);
}

}  // namespace causeway
