// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's TCP connections: which are let in, and what each may hold
// of the coordinator's memory. gRPC owns their sockets; it limits neither how
// many there are nor what it buffers for one (a message is stored as it comes,
// whatever length it announces). The kernel counts what a connection has
// received, the calls count what they have taken, and the difference is what
// gRPC holds. docs/security.md has the limits.
//
// Who accepts:   if (!connections.Admit(file)) close(file);
//                connections.Audit();      many times a second
// A call:        CallTicket ticket = connections.BeginCall(peer);
//                ticket.connection().Took(bytes);
#ifndef SERVER_EDGE_CONNECTIONS_H_
#define SERVER_EDGE_CONNECTIONS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/tcp_connections.h"
#include "proto/status.pb.h"

namespace causeway {

struct ConnectionLimits {
  // Connections in all, and from one address (of IPv6 the first 64 bits).
  int connections = 1024;
  int per_address = 512;
  // Bytes that gRPC and the calls may hold for all connections together.
  uint64_t held_bytes = 64 << 20;
};

// What one connection does, as its calls count it. Thread-safe.
class Connection {
 public:
  void CallBegan() {
    ++calls_begun_;
    ++calls_;
  }
  void CallEnded() { --calls_; }
  // A call is done with a message of so many bytes.
  void Took(uint64_t bytes) { taken_ += bytes; }
  // A message that takes so many bytes of memory is handed to gRPC, or was
  // sent.
  void SendBegan(uint64_t bytes) {
    ++sends_;
    sending_ += bytes;
  }
  void SendEnded(uint64_t bytes) {
    ++sent_;
    --sends_;
    sending_ -= bytes;
  }

 private:
  friend class Connections;

  std::atomic<int64_t> calls_ = 0;
  std::atomic<uint64_t> calls_begun_ = 0;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<int64_t> sends_ = 0;
  std::atomic<uint64_t> sending_ = 0;
  std::atomic<uint64_t> sent_ = 0;
};

// A call that is being served: counts for its connection as long as it lives.
class CallTicket {
 public:
  explicit CallTicket(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {
    connection_->CallBegan();
  }
  ~CallTicket() {
    // Null where it was moved from.
    if (connection_ != nullptr) connection_->CallEnded();
  }
  CallTicket(CallTicket&& other) = default;

  Connection& connection() const { return *connection_; }

 private:
  std::shared_ptr<Connection> connection_;
};

class Connections {
 public:
  Connections(const ConnectionLimits& limits, Clock now)
      : limits_(limits), now_(std::move(now)) {}

  // Whether `file`, which was just accepted, may be handed to gRPC; otherwise
  // it is to be closed. Where there are too many, the newcomer takes the place
  // of one that is not in use, if there is one: first of one that has sent
  // nothing, then of one that has made no call, then of one that has had none
  // for a minute; of several, the one that was used last the longest ago.
  // Admit and Audit are for one thread: while it is here, no file that it knows
  // can become another socket.
  bool Admit(int file);

  // Cuts off connections that hold too much, or that do not read what is sent
  // to them.
  void Audit();

  // A call on the connection `peer` (grpc::ServerContext::peer()). Thread-safe.
  CallTicket BeginCall(absl::string_view peer);

  // Thread-safe.
  v1::ConnectionUse Use() const;

 private:
  // One that was admitted.
  struct Entry {
    std::shared_ptr<Connection> use;
    int file = -1;
    // Tells the socket from others that `file` may become.
    uint64_t cookie = 0;
    // As in ConnectionLimits::per_address.
    std::string address;
    // At the last look.
    TcpConnection tcp;
    uint64_t held = 0;
    // When it last had a call, or was admitted.
    absl::Time used;
    // When the other end last took something of what was sent, or nothing was
    // to be sent; and what it had taken by then.
    absl::Time read;
    uint64_t sent = 0;
    uint64_t acknowledged = 0;
    // It has been reset; gRPC is about to close it.
    bool cut = false;
  };
  // By peer, as TcpConnection::peer.
  using Entries = std::map<std::string, Entry>;

  // Looks at all; removes those that are closed.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for one more, from `address` or, if that is empty, from
  // anywhere; false if there is nobody to give way.
  bool Displace(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int Count(const std::string& address) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why the connection must be cut; empty if it need not.
  std::string Examine(Entry& entry, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cut(const std::string& peer, Entry& entry, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ConnectionLimits limits_;
  const Clock now_;

  mutable absl::Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  // Since the start: not let in, displaced by another one or cut off, and ended
  // without a call.
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t displaced_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t unused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_EDGE_CONNECTIONS_H_
