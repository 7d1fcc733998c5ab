// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_TRANSPORT_LISTENING_SOCKETS_H_
#define COMMON_TRANSPORT_LISTENING_SOCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace causeway {

// Sockets that listen on one port, one for each family of addresses. They do
// not block. Movable.
class ListeningSockets {
 public:
  // Listens on `address`, host:port. Port 0 takes a free one; host 0.0.0.0 or
  // [::] is every address of this machine, IPv4 and IPv6.
  //   INVALID_ARGUMENT  `address` is not host:port.
  //   UNAVAILABLE       The address cannot be listened on.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ListeningSockets() = default;
  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&& other) noexcept;
  // Closes the port.
  ~ListeningSockets();

  const std::vector<int>& files() const { return files_; }
  uint16_t port() const { return port_; }

 private:
  std::vector<int> files_;
  uint16_t port_ = 0;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_LISTENING_SOCKETS_H_
