// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Plays the service manager in tests of common/os/service_manager.h.
#ifndef COMMON_TESTING_NOTIFY_SOCKET_H_
#define COMMON_TESTING_NOTIFY_SOCKET_H_

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/time/time.h"
#include "glog/logging.h"

namespace causeway {

// A socket that receives messages, and NOTIFY_SOCKET with its address.
class NotifySocket {
 public:
  // `address` is a path, or @ and a name in the abstract namespace.
  explicit NotifySocket(const std::string& address)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name = {.sun_family = AF_UNIX};
    CHECK_LT(address.size(), sizeof(name.sun_path));
    std::memcpy(name.sun_path, address.data(), address.size());
    if (address[0] == '@') name.sun_path[0] = '\0';
    PCHECK(bind(socket_, reinterpret_cast<const sockaddr*>(&name),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                       address.size())) == 0)
        << address;
    setenv("NOTIFY_SOCKET", address.c_str(), /*overwrite=*/1);
  }
  ~NotifySocket() {
    unsetenv("NOTIFY_SOCKET");
    close(socket_);
  }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // Waits for the next message. Returns "" if none comes in `timeout`, which is
  // more than 0.
  std::string Receive(absl::Duration timeout = absl::Seconds(60)) const {
    const timeval limit = absl::ToTimeval(timeout);
    PCHECK(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit,
                      sizeof(limit)) == 0);
    char buffer[4096];
    const ssize_t size = recv(socket_, buffer, sizeof(buffer), 0);
    return size < 0 ? "" : std::string(buffer, static_cast<size_t>(size));
  }

 private:
  const int socket_;
};

}  // namespace causeway

#endif  // COMMON_TESTING_NOTIFY_SOCKET_H_
