// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Addresses of sockets as texts: "host:port", an IPv6 address in brackets.
#ifndef COMMON_TRANSPORT_SOCKET_ADDRESS_H_
#define COMMON_TRANSPORT_SOCKET_ADDRESS_H_

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Returns the socket addresses, at least one, of `address`. `flags` are those
// of getaddrinfo: AI_PASSIVE for an address to listen on.
//   INVALID_ARGUMENT  It is not host:port, with the port as a number.
//   UNAVAILABLE       The host is not known.
//   RESOURCE_EXHAUSTED  This process may open no file to look the host up.
absl::StatusOr<Addresses> Resolve(absl::string_view address, int flags);

// Returns an IPv4 or IPv6 address. IPv4 in an IPv6 address is written as IPv4.
std::string AddressText(const sockaddr_storage& address);

// Returns the host of host:port or of a host alone, with its brackets if any.
absl::string_view HostOf(absl::string_view address);

// Returns the port of host:port, 0 to 65535, or -1 if it has none.
int PortOf(absl::string_view address);

// Returns whether only this machine can reach host:port: 127.0.0.0/8, [::1] or
// localhost. The addresses of other names may change.
bool IsLoopback(absl::string_view address);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_SOCKET_ADDRESS_H_
