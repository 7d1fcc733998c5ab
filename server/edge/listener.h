// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Accepts the coordinator's TCP connections. gRPC's own listener limits none,
// and is gone for good after one accept that failed for want of a descriptor.
//
//   ASSIGN_OR_RETURN(auto listener, Listener::Listen("[::]:7070"));
//   listener->Start(&connections, [](int file) { ... });
#ifndef SERVER_EDGE_LISTENER_H_
#define SERVER_EDGE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/edge/connections.h"

namespace causeway {

class Listener {
 public:
  // Listens on `address`: host:port, where port 0 takes a free one, and host
  // 0.0.0.0 or [::] is every address of this machine, IPv4 and IPv6.
  //   INVALID_ARGUMENT  it is not host:port.
  //   UNAVAILABLE       it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Listener>> Listen(
      const std::string& address);
  // Stops, and closes the port.
  ~Listener();

  int port() const { return port_; }

  // Begins to accept, on a thread of its own, which also audits `connections`.
  // What they admit goes to `take`, non-blocking, with its ownership. Call
  // once.
  void Start(Connections* connections, std::function<void(int)> take);

  // Accepts no more. `take` is not running and will not be called.
  void Stop();

 private:
  Listener() = default;

  void Run();
  // Takes connections that wait on `socket`. False if that takes descriptors,
  // and there are none.
  bool Accept(int socket);
  // The same with the descriptor that is kept for it, to close one connection.
  bool RefuseOne(int socket);

  std::vector<int> sockets_;
  uint16_t port_ = 0;
  // They wake the thread up to stop, and to audit.
  int stop_ = -1;
  int timer_ = -1;
  // A descriptor that is given up to refuse a connection when there is no
  // other.
  int reserve_ = -1;
  Connections* connections_ = nullptr;
  std::function<void(int)> take_;
  std::thread thread_;
};

// Lets this process open as many files as `limits.connections` and everything
// else take, as far as the system allows; lowers the limits where it does not.
void ReserveDescriptors(ConnectionLimits& limits);

}  // namespace causeway

#endif  // SERVER_EDGE_LISTENER_H_
