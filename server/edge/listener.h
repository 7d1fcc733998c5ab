// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Accepts the coordinator's TCP connections. gRPC's own listener does not limit
// them, and stops permanently when an accept fails for lack of a descriptor.
//
//   ASSIGN_OR_RETURN(auto listener, Listener::Listen("[::]:7070"));
//   listener->Start(&connections, [](int file) { ... });
#ifndef SERVER_EDGE_LISTENER_H_
#define SERVER_EDGE_LISTENER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/transport/listening_sockets.h"
#include "server/edge/connections.h"

namespace causeway {

class Listener {
 public:
  // Listens on `address` as ListeningSockets does, with its errors.
  static absl::StatusOr<std::unique_ptr<Listener>> Listen(
      const std::string& address);
  // Stops, and closes the port.
  ~Listener();

  int port() const { return sockets_.port(); }

  // Starts a thread that accepts connections and audits `connections`. Hands
  // each admitted socket, non-blocking, to `take`, which then owns it. Calls
  // `take` on another thread, because gRPC may keep that thread for as long as
  // a peer sends. Call once.
  void Start(Connections* connections, std::function<void(int)> take);

  // Stops accepting. When this returns, `take` is not running and will not be
  // called.
  void Stop();

 private:
  Listener() = default;

  void Run();
  // Looks at the process's memory, and returns whether an audit is due.
  bool IsAuditDue();
  // Accepts the connections that wait on `socket`. Returns false if descriptors
  // run out.
  bool Accept(int socket);
  // Calls take_ for the admitted sockets.
  void HandOver();
  // Refuses one connection with the reserved descriptor. Returns false if there
  // was none.
  bool RefuseOne(int socket);

  ListeningSockets sockets_;
  // Descriptors that wake the thread up to stop and to audit.
  int stop_ = -1;
  int timer_ = -1;
  // The number of looks since the last audit, and the least memory they saw.
  int looks_ = 0;
  uint64_t least_memory_ = 0;
  // A descriptor to give up when no other is left to refuse a connection with.
  int reserve_ = -1;
  Connections* connections_ = nullptr;
  std::function<void(int)> take_;
  std::thread thread_;
  std::thread hander_;
  absl::Mutex mu_;
  // The sockets for take_.
  std::deque<int> admitted_ ABSL_GUARDED_BY(mu_);
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
};

// Raises the process's limit on open files to what `limits.connections` and
// everything else need, or lowers `limits.connections` to what the system
// allows.
void ReserveDescriptors(ConnectionLimits& limits);

}  // namespace causeway

#endif  // SERVER_EDGE_LISTENER_H_
