// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/secure_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/os/machine.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "worker/collective/rank_secret.h"

namespace causeway {
namespace {

constexpr size_t kMostHandshakes = 64;
constexpr absl::Duration kHandshakeTime = absl::Seconds(10);
// Another host's system answers long before, even if its processes do not.
constexpr absl::Duration kReachTime = absl::Seconds(10);
// No event says when another host begins to listen. Ranks that start together
// do so some milliseconds apart, so the first pauses between tries are short.
constexpr absl::Duration kFirstConnectPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestConnectPause = absl::Milliseconds(200);
// The time between two questions whether to go on with a handshake.
constexpr absl::Duration kAskToGoOn = absl::Seconds(1);
// AES-GCM is safe for 2^24.5 records of 2^14 bytes (RFC 8446, section 5.5). New
// keys cost nothing, so they come far earlier.
constexpr size_t kBytesPerKey = size_t{1} << 28;
// An island of many ranks needs more sockets than a process may usually open.
// So this many files may follow each socket.
constexpr uint64_t kFilesToSpare = 256;
// A system that leaves this many questions in a row unanswered is silent.
constexpr int kQuestions = 2;

absl::Status SystemError(absl::string_view what) {
  if (errno == EMFILE || errno == ENFILE) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": ", strerror(errno), " (ulimit -n)"));
  }
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::Status Closed() {
  return absl::UnavailableError("the other side has closed the connection");
}

// Returns a non-blocking socket for the address, or -1.
int OpenSocket(const addrinfo& address) {
  return socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                0);
}

int SetOption(int descriptor, int level, int option, int value = 1) {
  return setsockopt(descriptor, level, option, &value, sizeof(value));
}

// Returns the host:port of one end of a connection, or the error.
std::string AddressOf(int descriptor, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (get(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return strerror(errno);
  }
  return AddressText(address);
}

// Calls `move` with the rest of `bytes` until nothing is left.
template <typename Byte, typename Move>
absl::Status MoveAll(absl::Span<Byte> bytes, pollfd file, absl::Time deadline,
                     const Clock& now, Move move) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t moved, move(bytes));
    bytes.remove_prefix(moved);
    if (moved > 0) continue;
    RETURN_IF_ERROR(PollUntil(absl::MakeSpan(&file, 1), deadline, now));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PollUntil(absl::Span<pollfd> files, absl::Time deadline,
                       const Clock& now) {
  for (;;) {
    const absl::Duration left = deadline - now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the other side did not answer");
    }
    const auto milliseconds = static_cast<int>(
        absl::ToInt64Milliseconds(std::min(left, absl::Hours(1))) + 1);
    const int ready = poll(files.data(), files.size(), milliseconds);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError("cannot poll");
  }
}

SSL_CTX* SecureSocket::Context() {
  static SSL_CTX* const context = [] {
    std::signal(SIGPIPE, SIG_IGN);
    SSL_CTX* const made = SSL_CTX_new(TLS_method());
    CHECK(made != nullptr);
    SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    // OpenSSL uses a pre-shared key with this suite.
    CHECK(SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256"));
    SSL_CTX_set_psk_client_callback(made, OfferKey);
    SSL_CTX_set_psk_server_callback(made, FindKey);
    // Nothing may follow the handshake, so that encryption can be stopped.
    SSL_CTX_set_num_tickets(made, 0);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE);
    return made;
  }();
  return context;
}

unsigned SecureSocket::OfferKey(SSL* ssl, const char* /*hint*/, char* identity,
                                unsigned identity_size, unsigned char* key,
                                unsigned key_size) {
  const auto* self = static_cast<SecureSocket*>(SSL_get_app_data(ssl));
  CHECK(self->name_.size() < identity_size && kRankKeyBytes <= key_size);
  std::strcpy(identity, self->name_.c_str());
  std::memcpy(key, self->key_.data(), kRankKeyBytes);
  return kRankKeyBytes;
}

unsigned SecureSocket::FindKey(SSL* ssl, const char* identity,
                               unsigned char* key, unsigned key_size) {
  auto* self = static_cast<SecureSocket*>(SSL_get_app_data(ssl));
  CHECK_LE(kRankKeyBytes, key_size);
  // The handshake will fail if the peer does not have the key.
  self->name_ = identity;
  std::memcpy(key, self->key_.data(), kRankKeyBytes);
  return kRankKeyBytes;
}

SecureSocket::SecureSocket(int descriptor, std::string key)
    : descriptor_(descriptor), key_(std::move(key)), ssl_(SSL_new(Context())) {
  CHECK(ssl_ != nullptr);
  CHECK_EQ(key_.size(), kRankKeyBytes);
  CHECK_EQ(SSL_set_fd(ssl_.get(), descriptor), 1);
  SSL_set_app_data(ssl_.get(), this);
  AllowOpenFiles(descriptor + kFilesToSpare);
  SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY);
  // After a second without traffic the system asks once a second whether the
  // other one is there. By itself it gives up only after about two minutes.
  SetOption(descriptor, SOL_SOCKET, SO_KEEPALIVE);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 127);
}

SecureSocket::~SecureSocket() { close(descriptor_); }

absl::Duration SecureSocket::Silence() const {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return absl::ZeroDuration();
  }
  // A question that has no answer yet may be on its way.
  const bool is_silent =
      std::max(info.tcpi_retransmits, info.tcpi_probes) >= kQuestions;
  return is_silent ? absl::Milliseconds(info.tcpi_last_ack_recv)
                   : absl::ZeroDuration();
}

void SecureSocket::Shutdown() { shutdown(descriptor_, SHUT_RDWR); }

int16_t SecureSocket::events() const {
  return SSL_want_write(ssl_.get()) ? POLLOUT : POLLIN;
}

absl::Status SecureSocket::TlsStatus(int result) const {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return absl::OkStatus();
    case SSL_ERROR_SSL: {
      const uint64_t error = ERR_get_error();
      if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) break;
      const char* const reason = ERR_reason_error_string(error);
      return absl::PermissionDeniedError(
          absl::StrCat("the other side has a different secret, or is no rank "
                       "of this island: ",
                       reason == nullptr ? "unknown error" : reason));
    }
    default:
      break;
  }
  return Closed();
}

absl::StatusOr<bool> SecureSocket::ContinueHandshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    RETURN_IF_ERROR(TlsStatus(result));
    return false;
  }
  key_.clear();
  if (!SSL_session_reused(ssl_.get())) {
    return absl::PermissionDeniedError("the key was not used");
  }
  if (!SSL_is_server(ssl_.get())) return true;
  // Tell the other side that it was accepted.
  ASSIGN_OR_RETURN(const size_t written, Write(absl::string_view("\1")));
  if (written == 0) return Closed();
  return true;
}

absl::Status SecureSocket::ConnectTo(const addrinfo& address,
                                     const std::string& name,
                                     absl::Time deadline, const Clock& now,
                                     const std::function<bool()>& go_on) {
  name_ = name;
  SSL_set_connect_state(ssl_.get());
  // Without the key, a listener would need a certificate, but no authority is
  // trusted.
  SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  const auto await = [&](int16_t events, absl::Time until) {
    pollfd file = {.fd = descriptor_, .events = events, .revents = 0};
    return PollUntil(absl::MakeSpan(&file, 1), until, now);
  };
  if (connect(descriptor_, address.ai_addr, address.ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return SystemError("cannot connect");
  }
  const absl::Time answered_by = now() + kReachTime;
  const absl::Status answered = await(POLLOUT, std::min(deadline, answered_by));
  // A refusal may be there even if no time was left to wait for it.
  socklen_t size = sizeof(errno);
  getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &errno, &size);
  if (errno != 0) return SystemError("cannot connect");
  if (absl::IsDeadlineExceeded(answered) && answered_by < deadline) {
    return absl::NotFoundError("it cannot be reached");
  }
  RETURN_IF_ERROR(answered);
  for (;;) {
    ASSIGN_OR_RETURN(const bool complete, ContinueHandshake());
    if (complete) break;
    // The listener answers once its process accepts connections.
    const absl::Time until = std::min(deadline, now() + kAskToGoOn);
    const absl::Status ready = await(events(), until);
    if (absl::IsDeadlineExceeded(ready) && until < deadline) {
      if (go_on == nullptr || go_on()) continue;
      return absl::CancelledError("the handshake was given up");
    }
    RETURN_IF_ERROR(ready);
  }
  char accepted = 0;
  return ReadAll(absl::MakeSpan(&accepted, 1), deadline, now);
}

absl::StatusOr<std::unique_ptr<SecureSocket>> SecureSocket::ConnectOnce(
    const std::string& address, const std::string& key, const std::string& name,
    absl::Time deadline, const Clock& now, const std::function<bool()>& go_on) {
  ASSIGN_OR_RETURN(const auto addresses, Resolve(address, 0));
  absl::Status status;
  for (const addrinfo* one = addresses.get(); one != nullptr;
       one = one->ai_next) {
    const int descriptor = OpenSocket(*one);
    if (descriptor < 0) {
      status = SystemError("cannot open a socket");
      continue;
    }
    std::unique_ptr<SecureSocket> made(new SecureSocket(descriptor, key));
    status = made->ConnectTo(*one, name, deadline, now, go_on);
    if (status.ok()) return made;
  }
  return absl::Status(status.code(),
                      absl::StrCat(address, ": ", status.message()));
}

absl::StatusOr<std::unique_ptr<SecureSocket>> SecureSocket::Connect(
    const std::string& address, const std::string& key, const std::string& name,
    absl::Time deadline, const Clock& now) {
  for (absl::Duration pause = kFirstConnectPause;;
       pause = std::min(2 * pause, kLongestConnectPause)) {
    auto socket = ConnectOnce(address, key, name, deadline, now);
    if (!absl::IsUnavailable(socket.status()) || now() + pause >= deadline) {
      return socket;
    }
    absl::SleepFor(pause);
  }
}

absl::StatusOr<size_t> SecureSocket::Read(absl::Span<char> bytes) {
  if (ssl_ != nullptr) {
    size_t moved = 0;
    ERR_clear_error();
    const int result =
        SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &moved);
    if (result != 1) RETURN_IF_ERROR(TlsStatus(result));
    return moved;
  }
  const ssize_t moved = recv(descriptor_, bytes.data(), bytes.size(), 0);
  if (moved > 0) return moved;
  if (moved == 0) return Closed();
  if (errno == EAGAIN || errno == EINTR) return 0;
  return SystemError("the connection broke");
}

absl::StatusOr<size_t> SecureSocket::Write(absl::Span<const char> bytes) {
  if (ssl_ != nullptr) {
    size_t moved = 0;
    ERR_clear_error();
    const int result =
        SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &moved);
    if (result != 1) RETURN_IF_ERROR(TlsStatus(result));
    written_ += moved;
    if (written_ >= kBytesPerKey && moved > 0) {
      written_ = 0;
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    return moved;
  }
  const ssize_t moved = send(descriptor_, bytes.data(), bytes.size(), 0);
  if (moved >= 0) return moved;
  if (errno == EAGAIN || errno == EINTR) return 0;
  return SystemError("the connection broke");
}

absl::Status SecureSocket::ReadAll(absl::Span<char> bytes, absl::Time deadline,
                                   const Clock& now) {
  return MoveAll(bytes, {.fd = descriptor_, .events = POLLIN, .revents = 0},
                 deadline, now,
                 [this](absl::Span<char> rest) { return Read(rest); });
}

absl::Status SecureSocket::WriteAll(absl::Span<const char> bytes,
                                    absl::Time deadline, const Clock& now) {
  return MoveAll(bytes, {.fd = descriptor_, .events = POLLOUT, .revents = 0},
                 deadline, now,
                 [this](absl::Span<const char> rest) { return Write(rest); });
}

SecureListener::SecureListener(int descriptor, std::string key, Clock now)
    : descriptor_(descriptor),
      stop_(eventfd(0, EFD_CLOEXEC)),
      key_(std::move(key)),
      now_(std::move(now)) {}

SecureListener::~SecureListener() {
  close(descriptor_);
  close(stop_);
}

absl::StatusOr<std::unique_ptr<SecureListener>> SecureListener::Listen(
    const std::string& address, std::string key, Clock now) {
  ASSIGN_OR_RETURN(const auto addresses, Resolve(address, AI_PASSIVE));
  const addrinfo& one = *addresses;
  const int descriptor = OpenSocket(one);
  if (descriptor < 0) return SystemError("cannot open a socket");
  std::unique_ptr<SecureListener> listener(
      new SecureListener(descriptor, std::move(key), std::move(now)));
  SetOption(descriptor, SOL_SOCKET, SO_REUSEADDR);
  if (listener->stop_ < 0 ||
      bind(descriptor, one.ai_addr, one.ai_addrlen) != 0 ||
      listen(descriptor, SOMAXCONN) != 0) {
    return SystemError(absl::StrCat("cannot listen on ", address,
                                    " for the island's other ranks"));
  }
  listener->address_ = AddressOf(descriptor, getsockname);
  return listener;
}

void SecureListener::BeginHandshake() {
  const int accepted =
      accept4(descriptor_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (accepted < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    LOG_EVERY_T(ERROR, 10) << "cannot accept a connection on " << address_
                           << ": " << strerror(errno);
    // Perhaps no descriptor is left. The connection keeps waiting, so poll
    // would return at once.
    if (!handshakes_.empty()) handshakes_.erase(handshakes_.begin());
    pollfd stop = {.fd = stop_, .events = POLLIN, .revents = 0};
    poll(&stop, 1, /*timeout=*/100);
    return;
  }
  if (handshakes_.size() == kMostHandshakes) {
    LOG_EVERY_T(WARNING, 10)
        << kMostHandshakes << " connections to " << address_
        << " have not proved the island's secret yet; closing the oldest";
    handshakes_.erase(handshakes_.begin());
  }
  std::unique_ptr<SecureSocket> socket(new SecureSocket(accepted, key_));
  SSL_set_accept_state(socket->ssl_.get());
  handshakes_.push_back({std::move(socket), AddressOf(accepted, getpeername),
                         now_() + kHandshakeTime});
}

absl::StatusOr<std::unique_ptr<SecureSocket>> SecureListener::Accept(
    absl::Time deadline) {
  for (;;) {
    std::vector<pollfd> files = {
        {.fd = stop_, .events = POLLIN, .revents = 0},
        {.fd = descriptor_, .events = POLLIN, .revents = 0}};
    for (const Handshake& handshake : handshakes_) {
      files.push_back({.fd = handshake.socket->descriptor(),
                       .events = handshake.socket->events(),
                       .revents = 0});
    }
    const absl::Time first = handshakes_.empty()
                                 ? deadline
                                 : std::min(deadline, handshakes_[0].deadline);
    const absl::Status polled = PollUntil(absl::MakeSpan(files), first, now_);
    if (files[0].revents != 0) return absl::CancelledError("stopped");
    if (absl::IsDeadlineExceeded(polled) && first == deadline) return polled;
    for (size_t i = handshakes_.size(); i-- > 0;) {
      const bool late = now_() >= handshakes_[i].deadline;
      if (!late && files[2 + i].revents == 0) continue;
      const absl::StatusOr<bool> complete =
          late ? absl::DeadlineExceededError("it is silent")
               : handshakes_[i].socket->ContinueHandshake();
      if (complete.ok() && !*complete) continue;
      Handshake ended = std::move(handshakes_[i]);
      handshakes_.erase(handshakes_.begin() + static_cast<ptrdiff_t>(i));
      if (complete.ok()) return std::move(ended.socket);
      LOG_EVERY_T(WARNING, 10)
          << "closed a connection from " << ended.from << " to " << address_
          << ", which has not proved the island's secret: "
          << complete.status().message();
    }
    if (files[1].revents != 0) BeginHandshake();
  }
}

void SecureListener::Stop() {
  const uint64_t one = 1;
  CHECK_EQ(write(stop_, &one, sizeof(one)), ssize_t{sizeof(one)});
}

}  // namespace causeway
