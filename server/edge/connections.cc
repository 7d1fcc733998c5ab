// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/connections.h"

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// A connection may hold kHeldBytes, kHeldBytesPerCall for each of its calls,
// and as much as its calls have already taken. Without a call it may hold
// kHeldBytesWithoutCall more: under load, the first window of an upload arrives
// before its call begins. A larger bound would cost time, because gRPC rereads
// an unfinished header with each piece that arrives: 0.5 s of processor time
// for 5 MiB, 5 s for 16 MiB.
//
// For a busy call gRPC holds the message that the call takes and the next one,
// of 1 MiB and 64 KiB each, and the stream's window. While there is memory, the
// window is 4 MiB or twice the product of rate and round trip, whichever is
// more, up to 32 MiB (flow_control.cc of gRPC 1.51). It follows the product in
// some tenths of a second. By then a peer has delivered as much as it may hold
// beyond the 4 MiB; until then, the rest of the 8 MiB covers it.
constexpr uint64_t kHeldBytes = 1 << 20;
constexpr uint64_t kHeldBytesPerCall = 8 << 20;
constexpr uint64_t kHeldBytesWithoutCall = 4 << 20;

// The longest time until a peer learns that a call has broken off.
constexpr absl::Duration kDropTime = absl::Seconds(10);

// The memory that gRPC takes for a call (measured).
constexpr uint64_t kBytesOfCall = 16 << 10;

// The bytes that may come besides messages: headers for each call, frames of
// HTTP/2 and TLS for each message and for its bytes, window updates for the
// bytes that this end sends, and pings.
constexpr uint64_t kBytesBesideCall = 1 << 10;
constexpr uint64_t kBytesBesideMessage = 64;
constexpr uint64_t kTakenBytesPerByteBeside = 256;
constexpr uint64_t kSentBytesPerByteBeside = 32;
constexpr double kBytesBesideSecond = 16;

// A peer that takes less than kLeastBytesRead in kMostTimeUnread, while there
// is something to send, is not reading. Even a link of 18 kbit/s is faster.
constexpr uint64_t kLeastBytesRead = 64 << 10;
constexpr absl::Duration kMostTimeUnread = absl::Seconds(30);

// The load from which calls are refused.
constexpr double kFullForJoiners = 7.0 / 8;
constexpr double kFullForWatchers = 3.0 / 4;

// A connection without a call for this long is not in use.
constexpr absl::Duration kUnused = absl::Minutes(1);

// The most connections that are reset but not yet closed by gRPC.
constexpr int kMostClosing = 64;

// Seconds for which a kind of log line is not repeated.
constexpr int kLogSeconds = 10;

// Returns a number that no other socket has; 0 if `file` is not a socket.
uint64_t CookieOf(int file) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  getsockopt(file, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

}  // namespace

absl::Status Connection::CheckLoad(Precedence precedence) const {
  const bool is_joiner = precedence == Precedence::kJoiner;
  if (precedence == Precedence::kMember ||
      load_ < (is_joiner ? kFullForJoiners : kFullForWatchers)) {
    return absl::OkStatus();
  }
  LOG_EVERY_T(WARNING, kLogSeconds)
      << "refusing calls from " << (is_joiner ? "newcomers" : "watchers")
      << ": " << absl::StrFormat("%.0f", 100 * load_)
      << " % of the connections or of the memory for calls are in use";
  return absl::ResourceExhaustedError(absl::StrCat(
      "the coordinator is overloaded and serves its members first, not ",
      is_joiner ? "newcomers" : "watchers",
      ": its connections or its memory for calls are nearly all in use; try "
      "again in a few seconds"));
}

bool Connections::Admit(int file) {
  const std::optional<TcpConnection> tcp = AskTcpConnection(file);
  // The connection is already closed.
  if (!tcp.has_value()) return false;
  const std::string address = NetworkOf(tcp->peer);
  absl::MutexLock lock(&mu_);
  const bool is_second = entries_.contains(tcp->peer);
  if (is_second || Count(address) >= limits_.per_address ||
      Count("") >= limits_.connections) {
    Look();
    // A peer may connect to two addresses of this machine from one port.
    if (is_second && entries_.contains(tcp->peer)) {
      NoteRefusal(address);
      LOG_EVERY_T(WARNING, kLogSeconds)
          << "refused a connection from " << tcp->peer
          << ": this address and port already has one; " << refused_
          << " refused so far";
      return false;
    }
    if ((Count(address) >= limits_.per_address && !Displace(address)) ||
        (Count("") >= limits_.connections && !Displace(""))) {
      NoteRefusal(address);
      LOG_EVERY_T(WARNING, kLogSeconds)
          << "refused a connection from " << tcp->peer << ": " << Count(address)
          << " of " << limits_.per_address << " from its address and "
          << Count("") << " of " << limits_.connections
          << " in all are in use; " << refused_
          << " refused so far (--max_connections)";
      return false;
    }
  }
  const absl::Time now = now_();
  entries_[tcp->peer] = Entry{.use = std::make_shared<Connection>(),
                              .file = file,
                              .cookie = CookieOf(file),
                              .address = address,
                              .admitted = now,
                              .used = now,
                              .read = now};
  SpreadLoad();
  return true;
}

void Connections::Audit() {
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  Look();
  uint64_t held = 0;
  uint64_t undelivered = 0;
  for (auto& [peer, entry] : entries_) {
    if (entry.cut) {
      // gRPC misses some resets, and finds them only by its keepalive. This
      // raises the event again.
      shutdown(entry.file, SHUT_RDWR);
      continue;
    }
    const std::string why = Examine(entry, now);
    if (!why.empty()) {
      ++cut_;
      Cut(peer, entry, why);
    } else {
      held += entry.held;
      undelivered += entry.undelivered;
    }
  }
  undelivered_ = undelivered;
  SpreadLoad();
  // Connections that have delivered much go last.
  const auto excess = [](const Entry& entry) {
    return entry.cut ? INT64_MIN
                     : static_cast<int64_t>(entry.held - entry.use->taken_);
  };
  while (undelivered > limits_.undelivered_bytes || held > limits_.held_bytes) {
    const auto worst = std::max_element(
        entries_.begin(), entries_.end(), [&](const auto& a, const auto& b) {
          return excess(a.second) < excess(b.second);
        });
    Entry& entry = worst->second;
    ++cut_;
    Cut(worst->first, entry,
        absl::StrCat("all connections together hold ", held, " bytes, ",
                     undelivered, " of them beyond what they have delivered; ",
                     limits_.held_bytes, " and ", limits_.undelivered_bytes,
                     " are allowed, and this one holds ", entry.held));
    held -= entry.held;
    undelivered -= entry.undelivered;
  }
}

void Connections::Look() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto& [peer, entry] = *it;
    if (CookieOf(entry.file) == entry.cookie) {
      UpdateTcpConnection(entry.file, entry.tcp);
      ++it;
      continue;
    }
    AddTo(entry, Remember(entry.name.empty() ? entry.address : entry.name));
    if (entry.use->calls_begun_ == 0 && !entry.cut) {
      ++unused_;
      LOG_EVERY_T(INFO, kLogSeconds)
          << "the connection from " << peer
          << " ended without a call, as a probe of the port or a refused TLS "
             "handshake does; "
          << unused_ << " of these so far";
    }
    // Freed memory counts until the process returns it to the system.
    if (entry.cut && entry.held > kHeldBytes) malloc_trim(0);
    it = entries_.erase(it);
  }
}

uint64_t Connections::FindUnread(Entry& entry, absl::Time now) {
  const Connection& use = *entry.use;
  const uint64_t received = entry.tcp.bytes_received;
  const uint64_t taken = use.taken_;
  const uint64_t expected =
      taken + taken / kTakenBytesPerByteBeside +
      kBytesBesideMessage * use.messages_ +
      kBytesBesideCall * use.calls_begun_ +
      entry.tcp.bytes_acknowledged / kSentBytesPerByteBeside +
      static_cast<uint64_t>(kBytesBesideSecond *
                            absl::ToDoubleSeconds(now - entry.admitted)) +
      entry.dropped;
  // A peer cannot save up unused allowance.
  if (expected > received + entry.unused_allowance) {
    entry.unused_allowance = expected - received;
  }
  return received + entry.unused_allowance - expected;
}

std::string Connections::Examine(Entry& entry, absl::Time now) {
  const Connection& use = *entry.use;
  if (use.ended_) return "its certificate has expired";
  const uint64_t acknowledged = entry.tcp.bytes_acknowledged;
  const int64_t calls = use.calls_;
  const uint64_t taken = use.taken_;
  if (calls > 0) entry.used = now;
  uint64_t unread = FindUnread(entry, now);
  // Bytes for calls that broke off cannot be distinguished from bytes that gRPC
  // holds, except while there is no call, because then gRPC holds none.
  if (now >= entry.broke_off + kDropTime) {
    entry.droppable = std::min(entry.droppable, entry.held);
  }
  if (const uint64_t broken_off = use.calls_broken_off_;
      broken_off != entry.broken_off) {
    entry.broken_off = broken_off;
    entry.broke_off = now;
    entry.droppable = kHeldBytesPerCall;
  }
  if (calls == 0) {
    const uint64_t dropped = std::min(unread, entry.droppable);
    entry.dropped += dropped;
    entry.droppable -= dropped;
    unread -= dropped;
  }
  const int64_t receivers = calls + (now < entry.broke_off + kDropTime ? 1 : 0);
  entry.held = unread + use.sending_ + kBytesOfCall * calls;
  entry.undelivered = entry.held - std::min(entry.held, taken);
  const uint64_t for_calls =
      receivers == 0 ? kHeldBytesWithoutCall : kHeldBytesPerCall * receivers;
  if (entry.held > kHeldBytes + for_calls + taken + 2 * acknowledged) {
    return absl::StrCat("it holds ", entry.held,
                        " bytes of memory that none of its calls has taken");
  }
  const uint64_t sent = use.sent_;
  if (use.sends_ == 0 || sent != entry.sent ||
      acknowledged - entry.acknowledged >= kLeastBytesRead) {
    entry.read = now;
    entry.sent = sent;
    entry.acknowledged = acknowledged;
  }
  if (now - entry.read > kMostTimeUnread) {
    return absl::StrCat("it has not read what it was sent for ",
                        absl::FormatDuration(kMostTimeUnread));
  }
  return "";
}

bool Connections::Displace(const std::string& address) {
  const absl::Time now = now_();
  int closing = 0;
  Entries::value_type* victim = nullptr;
  const auto rank = [](const Entry& entry) {
    return std::make_tuple(entry.use->served(), entry.tcp.bytes_received > 0,
                           entry.used);
  };
  for (auto& candidate : entries_) {
    const Entry& entry = candidate.second;
    if (entry.cut) {
      ++closing;
    } else if (!IsInUse(entry, now) &&
               (address.empty() || entry.address == address) &&
               (victim == nullptr || rank(entry) < rank(victim->second))) {
      victim = &candidate;
    }
  }
  if (victim == nullptr || closing >= kMostClosing) return false;
  ++displaced_;
  Cut(victim->first, victim->second,
      absl::StrCat("it was idle, and others need its place; ", displaced_,
                   " of these so far"));
  return true;
}

int Connections::Count(const std::string& address) const {
  return static_cast<int>(
      std::count_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
        return !entry.second.cut &&
               (address.empty() || entry.second.address == address);
      }));
}

void Connections::Cut(const std::string& peer, Entry& entry,
                      absl::string_view why) {
  entry.cut = true;
  // Unlike a shutdown, this resets the connection and drops what gRPC has not
  // read yet. gRPC then finds the error and closes the file.
  const sockaddr nowhere = {.sa_family = AF_UNSPEC};
  connect(entry.file, &nowhere, sizeof(nowhere));
  LOG_EVERY_T(WARNING, kLogSeconds)
      << "cut off the connection from " << peer << ": " << why;
}

bool Connections::IsInUse(const Entry& entry, absl::Time now) {
  return entry.use->calls_ > 0 ||
         (entry.use->served() && now - entry.used < kUnused);
}

void Connections::SpreadLoad() {
  const absl::Time now = now_();
  std::map<absl::string_view, int> in_use;
  int all = 0;
  for (const auto& [peer, entry] : entries_) {
    if (entry.cut || !IsInUse(entry, now)) continue;
    ++in_use[entry.address];
    ++all;
  }
  const double total =
      std::max(static_cast<double>(all) / limits_.connections,
               static_cast<double>(undelivered_) /
                   static_cast<double>(limits_.undelivered_bytes));
  for (auto& [peer, entry] : entries_) {
    entry.use->load_ =
        std::max(total, static_cast<double>(in_use[entry.address]) /
                            limits_.per_address);
  }
}

void Connections::NoteRefusal(const std::string& address) {
  ++refused_;
  v1::PeerUse& peer = Remember(address);
  peer.set_refused(peer.refused() + 1);
}

v1::PeerUse& Connections::Remember(const std::string& peer) {
  if (gone_.size() >= kMostGone && gone_.count(peer) == 0) {
    gone_.erase(std::min_element(gone_.begin(), gone_.end(),
                                 [](const auto& a, const auto& b) {
                                   return a.second.last < b.second.last;
                                 }));
  }
  Gone& gone = gone_[peer];
  gone.last = now_();
  return gone.use;
}

void Connections::AddTo(const Entry& entry, v1::PeerUse& use) {
  use.set_calls_begun(use.calls_begun() + entry.use->calls_begun_);
  use.set_bytes_received(use.bytes_received() + entry.tcp.bytes_received);
  use.set_bytes_sent(use.bytes_sent() + entry.tcp.bytes_acknowledged);
  use.set_refused(use.refused() + entry.use->calls_refused_);
  use.set_cut(use.cut() + (entry.cut ? 1 : 0));
}

v1::ListPeersResponse Connections::Peers() const {
  std::map<std::string, v1::PeerUse> peers;
  absl::MutexLock lock(&mu_);
  for (const auto& [peer, gone] : gone_) peers[peer] = gone.use;
  for (const auto& [_, entry] : entries_) {
    v1::PeerUse& peer = peers[entry.name.empty() ? entry.address : entry.name];
    AddTo(entry, peer);
    peer.set_connections(peer.connections() + 1);
    peer.set_calls(peer.calls() + static_cast<uint32_t>(entry.use->calls_));
    peer.set_held_bytes(peer.held_bytes() + entry.held);
  }
  v1::ListPeersResponse response;
  for (auto& [peer, use] : peers) {
    use.set_peer(peer);
    *response.add_peers() = std::move(use);
  }
  return response;
}

CallTicket Connections::BeginCall(absl::string_view peer,
                                  absl::string_view name) {
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock lock(&mu_);
    const auto entry = entries_.find(PeerAddress(peer));
    if (entry != entries_.end()) {
      connection = entry->second.use;
      if (!name.empty()) entry->second.name = std::string(name);
    }
  }
  // The connection has just been cut off.
  if (connection == nullptr) connection = std::make_shared<Connection>();
  return CallTicket(std::move(connection));
}

v1::ConnectionUse Connections::Use() const {
  v1::ConnectionUse use;
  use.set_limit(static_cast<uint32_t>(limits_.connections));
  absl::MutexLock lock(&mu_);
  int64_t calls = 0;
  for (const auto& [peer, entry] : entries_) calls += entry.use->calls_;
  use.set_calls(static_cast<uint32_t>(calls));
  use.set_open(static_cast<uint32_t>(entries_.size()));
  use.set_refused(refused_);
  use.set_displaced(displaced_);
  use.set_cut(cut_);
  use.set_unused(unused_);
  return use;
}

}  // namespace causeway
