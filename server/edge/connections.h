// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Limits the coordinator's TCP connections and the memory that each may hold.
// gRPC owns their sockets, but limits neither their number nor its buffers (it
// stores a message as it arrives, whatever length the message announces). The
// kernel counts the bytes that a connection has received, and the calls count
// the bytes they have taken; gRPC holds the difference. docs/security.md has
// the limits.
//
// When connections or memory run short, calls are refused before connections:
// first calls of watchers, then of joiners, never of members.
//
// The listener:  if (!connections.Admit(file)) close(file);
//                connections.Audit();      many times a second while memory
//                                          grows
// A call:        CallTicket ticket = connections.BeginCall(peer);
//                RETURN_IF_ERROR(ticket.connection().CheckLoad(precedence));
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
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/tcp_connections.h"
#include "proto/control.pb.h"
#include "proto/status.pb.h"

namespace causeway {

struct ConnectionLimits {
  // Connections in all, and from one address (for IPv6, its first 64 bits).
  int connections = 1024;
  int per_address = 512;
  // The most bytes that gRPC and the calls may hold for all connections
  // together: in excess of what each connection has delivered, and in all.
  uint64_t undelivered_bytes = 64 << 20;
  uint64_t held_bytes = 320 << 20;
};

// The load up to which a call is served.
enum class Precedence {
  // Always served: members and operators.
  kMember,
  // Served until seven eighths of the connections or the memory are in use.
  kJoiner,
  // Served until three quarters are in use.
  kWatcher,
};

// The use of one connection, as its calls count it. Thread-safe.
class Connection {
 public:
  // Notes that the last begun call was refused, so that it does not count.
  void CallRefused() { ++calls_refused_; }
  //   RESOURCE_EXHAUSTED  Such calls must wait until the load has passed.
  absl::Status CheckLoad(Precedence precedence) const;
  void CallBegan() {
    ++calls_begun_;
    ++calls_;
  }
  void CallEnded() { --calls_; }
  // Notes that a call ended while its peer may still be sending. gRPC drops
  // what comes after the end.
  void CallBrokeOff() { ++calls_broken_off_; }
  // Marks the connection to be cut off.
  void End() { ended_ = true; }
  // Notes that a call is done with a message of `bytes` bytes.
  void Took(uint64_t bytes) {
    taken_ += bytes;
    ++messages_;
  }
  // Note that a message of `bytes` bytes was handed to gRPC, or was sent.
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

  // Returns whether the connection has had a call that was not refused.
  bool served() const { return calls_begun_ > calls_refused_; }

  // The share of the limits in use, in all or by the peer's address, whichever
  // is larger.
  std::atomic<double> load_ = 0;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<uint64_t> calls_begun_ = 0;
  std::atomic<uint64_t> calls_refused_ = 0;
  std::atomic<uint64_t> calls_broken_off_ = 0;
  std::atomic<bool> ended_ = false;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<int64_t> sends_ = 0;
  std::atomic<uint64_t> sending_ = 0;
  std::atomic<uint64_t> sent_ = 0;
};

// A call that is being served; its connection counts it as long as it lives.
class CallTicket {
 public:
  explicit CallTicket(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {
    connection_->CallBegan();
  }
  ~CallTicket() {
    // Null if it was moved from.
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

  // Returns whether `file`, which was just accepted, may be handed to gRPC;
  // otherwise the caller closes it. If there are too many connections, a new
  // one replaces an unused one, if any. Connections that have sent nothing go
  // first, then connections without a served call, then without a call for a
  // minute; among equals, the least recently used. A second connection from the
  // same address and port is refused, because these identify a call's
  // connection. Call Admit and Audit on one thread, so that a new connection
  // does not get the descriptor of a closed one during an audit.
  bool Admit(int file);

  // Cuts off connections that hold too much memory or do not read, and computes
  // the load.
  void Audit();

  // Begins a call on the connection `peer` (grpc::ServerContext::peer()) of the
  // caller `name`, which is empty if unknown. Thread-safe.
  CallTicket BeginCall(absl::string_view peer, absl::string_view name = "");

  // Thread-safe.
  v1::ConnectionUse Use() const;

  // Returns the current and past use of each peer with connections, and of the
  // last kMostGone others. Thread-safe.
  v1::ListPeersResponse Peers() const;

  static constexpr size_t kMostGone = 256;

 private:
  struct Entry {
    std::shared_ptr<Connection> use;
    int file = -1;
    // Distinguishes the socket from later ones with the same descriptor.
    uint64_t cookie = 0;
    // The address that ConnectionLimits::per_address counts.
    std::string address;
    // The caller's name; empty while unknown.
    std::string name;
    // The state at the last Look.
    TcpConnection tcp;
    // The bytes held, and by how many they exceed the bytes delivered.
    uint64_t held = 0;
    uint64_t undelivered = 0;
    // The bytes that may still arrive besides messages.
    uint64_t unused_allowance = 0;
    // For calls that broke off: the bytes that arrived, the bytes that may
    // still be counted as such, the number of calls, and the time at which the
    // last one was noticed.
    uint64_t dropped = 0;
    uint64_t droppable = 0;
    uint64_t broken_off = 0;
    absl::Time broke_off = absl::InfinitePast();
    absl::Time admitted;
    // The time of its last call, or of its admission.
    absl::Time used;
    // The last time at which the peer acknowledged something or nothing was
    // left to send, and the counts at that time.
    absl::Time read;
    uint64_t sent = 0;
    uint64_t acknowledged = 0;
    // Is true once the connection is reset; gRPC is about to close it.
    bool cut = false;
  };
  // By TcpConnection::peer.
  using Entries = std::map<std::string, Entry>;
  // The sums over a peer's closed connections.
  struct Gone {
    v1::PeerUse use;
    absl::Time last;
  };

  static void AddTo(const Entry& entry, v1::PeerUse& use);
  static bool IsInUse(const Entry& entry, absl::Time now);
  void NoteRefusal(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the sums over a peer's closed connections, adding them if absent.
  v1::PeerUse& Remember(const std::string& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SpreadLoad() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Updates all entries; removes those of closed connections.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for one more connection, from `address` or, if empty, from
  // anywhere. Returns false if no connection can be closed for it.
  bool Displace(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int Count(const std::string& address) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes that have arrived but that no call has taken.
  static uint64_t FindUnread(Entry& entry, absl::Time now);
  // Returns why the connection must be cut off; empty if it need not be.
  std::string Examine(Entry& entry, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cut(const std::string& peer, Entry& entry, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ConnectionLimits limits_;
  const Clock now_;

  mutable absl::Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  // The sum over all connections at the last audit.
  uint64_t undelivered_ ABSL_GUARDED_BY(mu_) = 0;
  // The peers' sums, by name or address.
  std::map<std::string, Gone> gone_ ABSL_GUARDED_BY(mu_);
  // Count connections refused, closed to make room, cut off, and ended without
  // a call.
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t displaced_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t unused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_EDGE_CONNECTIONS_H_
