// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/tcp_transport.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/restated.h"
#include "common/status_macros.h"
#include "proto/island.pb.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/secure_socket.h"
#include "worker/collective/time_limit.h"

namespace causeway {
namespace {

// The bytes that one connection moves before the others have their turn.
constexpr size_t kTurnBytes = 1 << 20;

// A host that has been silent for this long is not reached. Ranks that compare
// what they reach may have lost a host at different moments.
constexpr absl::Duration kSilence = absl::Seconds(3);

using Sockets = std::vector<std::unique_ptr<SecureSocket>>;

class TcpTransport : public Transport {
 public:
  // The socket of this rank is null.
  TcpTransport(int rank, Sockets sockets, Clock now)
      : rank_(rank), now_(std::move(now)), peers_(sockets.size()) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      peers_[i].socket = std::move(sockets[i]);
    }
  }
  ~TcpTransport() override { Close(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  // The order of the messages replaces their tags.
  std::unique_ptr<Transfer> Send(int peer, uint64_t /*tag*/,
                                 absl::Span<const char> bytes) override {
    return std::make_unique<TcpTransfer<const char>>(this, peer, bytes);
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t /*tag*/,
                                    absl::Span<char> bytes) override {
    return std::make_unique<TcpTransfer<char>>(this, peer, bytes);
  }

  std::vector<int> Unreached() const override {
    std::vector<int> unreached;
    for (int number = 0; number < size(); ++number) {
      const auto& socket = peers_[number].socket;
      if (socket != nullptr && socket->Silence() >= kSilence) {
        unreached.push_back(number);
      }
    }
    return unreached;
  }

  void Close() override {
    closed_ = true;
    for (const Peer& peer : peers_) {
      if (peer.socket != nullptr) peer.socket->Shutdown();
    }
  }

 private:
  // The bytes of a message that have not moved; const if the message is sent.
  using Outgoing = absl::Span<const char>;
  using Incoming = absl::Span<char>;

  struct Peer {
    std::unique_ptr<SecureSocket> socket;
    // The messages that have not moved entirely, the oldest first.
    std::deque<Outgoing*> outgoing;
    std::deque<Incoming*> incoming;
    absl::Status status;
  };

  template <typename Byte>
  class TcpTransfer : public Transfer {
   public:
    TcpTransfer(TcpTransport* transport, int peer, absl::Span<Byte> bytes)
        : transport_(transport), peer_(peer), rest_(bytes) {
      transport_->Start(peer_, &rest_);
    }
    ~TcpTransfer() override { transport_->Drop(peer_, rest_); }

    absl::Status Wait(TimeLimit& limit) override {
      return transport_->Await(peer_, rest_, limit);
    }

   private:
    TcpTransport* const transport_;
    const int peer_;
    absl::Span<Byte> rest_;
  };

  void Start(int number, Outgoing* message) {
    Peer& peer = peers_[number];
    if (!peer.status.ok()) return;
    peer.outgoing.push_back(message);
    if (peer.outgoing.size() == 1) Write(peer);
  }
  void Start(int number, Incoming* message) {
    Peer& peer = peers_[number];
    if (peer.status.ok()) peer.incoming.push_back(message);
  }

  // Waits until the message has moved, which makes `rest` empty, and moves
  // others meanwhile.
  template <typename Byte>
  absl::Status Await(int peer, const absl::Span<Byte>& rest, TimeLimit& limit) {
    while (!rest.empty()) {
      if (closed_) {
        return absl::UnavailableError("the connections were closed");
      }
      RETURN_IF_ERROR(peers_[peer].status);
      if (MoveSome()) continue;
      const absl::Status ready = AwaitSockets(now_() + limit.Slice());
      if (!absl::IsDeadlineExceeded(ready)) {
        RETURN_IF_ERROR(ready);
      } else if (limit.IsOver() ||
                 peers_[peer].socket->Silence() >= kLongestSilence) {
        return ready;
      }
    }
    return absl::OkStatus();
  }

  // Gives the message up, and also the connection if bytes are missing, because
  // the rest could not be distinguished from what follows.
  void Drop(int peer, absl::Span<const char> rest) {
    if (rest.empty() || !peers_[peer].status.ok()) return;
    Fail(peers_[peer], absl::UnavailableError("a message was given up"));
  }

  static void Fail(Peer& peer, const absl::Status& status) {
    peer.status = status;
    peer.outgoing.clear();
    peer.incoming.clear();
  }

  // Moves bytes of the messages by `move`. Returns whether bytes moved or the
  // connection failed.
  template <typename Byte, typename Move>
  static bool Advance(Peer& peer, std::deque<absl::Span<Byte>*>& messages,
                      Move move) {
    size_t total = 0;
    while (!messages.empty() && total < kTurnBytes) {
      absl::Span<Byte>& rest = *messages.front();
      const absl::StatusOr<size_t> moved = move(rest);
      if (!moved.ok()) {
        Fail(peer, moved.status());
        return true;
      }
      if (*moved == 0) break;
      total += *moved;
      rest.remove_prefix(*moved);
      if (rest.empty()) messages.pop_front();
    }
    return total > 0;
  }
  static bool Write(Peer& peer) {
    return Advance(peer, peer.outgoing, [&](absl::Span<const char> bytes) {
      return peer.socket->Write(bytes);
    });
  }
  static bool Read(Peer& peer) {
    return Advance(peer, peer.incoming, [&](absl::Span<char> bytes) {
      return peer.socket->Read(bytes);
    });
  }

  bool MoveSome() {
    bool moved = false;
    for (Peer& peer : peers_) {
      if (Write(peer)) moved = true;
      if (Read(peer)) moved = true;
    }
    return moved;
  }

  absl::Status AwaitSockets(absl::Time deadline) {
    files_.clear();
    for (const Peer& peer : peers_) {
      if (peer.outgoing.empty() && peer.incoming.empty()) continue;
      const int events = (peer.outgoing.empty() ? 0 : POLLOUT) |
                         (peer.incoming.empty() ? 0 : POLLIN);
      files_.push_back({.fd = peer.socket->descriptor(),
                        .events = static_cast<int16_t>(events),
                        .revents = 0});
    }
    return PollUntil(absl::MakeSpan(files_), deadline, now_);
  }

  const int rank_;
  const Clock now_;
  std::atomic<bool> closed_ = false;
  std::vector<Peer> peers_;
  std::vector<pollfd> files_;
};

std::string RankKey(const TcpTransportOptions& options, int rank) {
  return absl::StrCat("tcp/", options.name, "/", rank);
}

// Returns host:0, the address at which this rank listens.
std::string ListenAddress(std::string host) {
  if (host.empty()) {
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    host = name;
  }
  return absl::StrCat(host, ":0");
}

// Calls wait(time) until it returns in time, `limit` is over, a rank that
// cannot connect has been reported, or rank 0 has ended.
template <typename Wait>
auto WaitWhileRanksConnect(TimeLimit& limit, Rendezvous* rendezvous, Wait wait)
    -> decltype(wait(absl::Duration())) {
  for (;;) {
    auto result = wait(limit.Slice());
    const bool must_wait = absl::IsDeadlineExceeded(result.status()) ||
                           absl::IsUnavailable(result.status());
    if (!must_wait || limit.IsOver()) return result;
    RETURN_IF_ERROR(CheckWhileConnecting(rendezvous));
  }
}

// Connects to the lower ranks, which do not wait for this one meanwhile.
absl::Status ConnectToLower(const TcpTransportOptions& options,
                            TimeLimit& limit, Rendezvous* rendezvous,
                            Sockets& sockets) {
  for (int peer = 0; peer < options.rank; ++peer) {
    ASSIGN_OR_RETURN(
        const std::string text,
        WaitWhileRanksConnect(limit, rendezvous, [&](absl::Duration time) {
          return rendezvous->Get(RankKey(options, peer), time);
        }));
    v1::RankAddress address;
    if (!address.ParseFromString(text) || address.key().size() != 32) {
      return absl::DataLossError(
          absl::StrCat("the address of rank ", peer, " is damaged"));
    }
    while (sockets[peer] == nullptr) {
      // The peer accepts connections once it is connected to lower ranks.
      absl::Status trouble;
      auto socket = SecureSocket::ConnectOnce(
          address.address(), address.key(), absl::StrCat(options.rank),
          options.now() + limit.Left(), options.now, [&] {
            trouble = CheckWhileConnecting(rendezvous);
            return trouble.ok();
          });
      RETURN_IF_ERROR(trouble);
      if (socket.ok()) {
        sockets[peer] = *std::move(socket);
      } else if (absl::IsNotFound(socket.status())) {
        return ReportBrokenLink(options.rank, peer, socket.status().message(),
                                rendezvous);
      } else if (!absl::IsUnavailable(socket.status()) || limit.IsOver()) {
        return socket.status();
      } else {
        // Perhaps the peer has ended because of a link of its own.
        RETURN_IF_ERROR(CheckWhileConnecting(rendezvous));
      }
    }
  }
  return absl::OkStatus();
}

// Accepts the higher ranks. A rank that connects again has given up its first
// connection.
absl::Status AcceptHigher(const TcpTransportOptions& options, TimeLimit& limit,
                          Rendezvous* rendezvous, SecureListener& listener,
                          Sockets& sockets) {
  for (;;) {
    std::vector<int> missing;
    for (int peer = options.rank + 1; peer < options.size; ++peer) {
      if (sockets[peer] == nullptr) missing.push_back(peer);
    }
    if (missing.empty()) return absl::OkStatus();
    auto socket =
        WaitWhileRanksConnect(limit, rendezvous, [&](absl::Duration time) {
          return listener.Accept(options.now() + time);
        });
    if (RankTroubleOf(socket.status()).has_value()) return socket.status();
    if (absl::IsDeadlineExceeded(socket.status())) {
      return absl::DeadlineExceededError(absl::StrCat(
          "ranks that did not connect: ", absl::StrJoin(missing, ", ")));
    }
    RETURN_IF_ERROR(socket.status());
    int peer = 0;
    if (!absl::SimpleAtoi((*socket)->name(), &peer) || peer <= options.rank ||
        peer >= options.size) {
      return absl::InternalError(
          absl::StrCat("a rank says that it is \"", (*socket)->name(), "\""));
    }
    sockets[peer] = *std::move(socket);
  }
}

absl::StatusOr<Sockets> ConnectMesh(const TcpTransportOptions& options,
                                    Rendezvous* rendezvous) {
  TimeLimit limit(options.connect_timeout, &options.now);
  v1::RankAddress own;
  own.set_key(RandomKey());
  ASSIGN_OR_RETURN(const std::unique_ptr<SecureListener> listener,
                   SecureListener::Listen(ListenAddress(options.host),
                                          own.key(), options.now));
  own.set_address(listener->address());
  RETURN_IF_ERROR(
      rendezvous->Put(RankKey(options, options.rank), own.SerializeAsString()));
  Sockets sockets(options.size);
  RETURN_IF_ERROR(ConnectToLower(options, limit, rendezvous, sockets));
  RETURN_IF_ERROR(AcceptHigher(options, limit, rendezvous, *listener, sockets));
  if (options.encrypt) return sockets;
  for (const auto& socket : sockets) {
    if (socket != nullptr) socket->StopEncrypting();
  }
  return sockets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ConnectTcp(
    const TcpTransportOptions& options, Rendezvous* rendezvous) {
  absl::StatusOr<Sockets> sockets = ConnectMesh(options, rendezvous);
  if (!sockets.ok()) {
    return Restated(
        sockets.status(), sockets.status().code(),
        absl::StrCat("rank ", options.rank, " of ", options.size,
                     " could not connect to the island's other ranks: ",
                     sockets.status().message()));
  }
  return std::make_unique<TcpTransport>(options.rank, *std::move(sockets),
                                        options.now);
}

}  // namespace causeway
