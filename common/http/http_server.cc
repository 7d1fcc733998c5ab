// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr char kEndOfHead[] = "\r\n\r\n";
constexpr size_t kMostRequestBytes = 16 << 10;

// The most bytes that one call writes, so that no peer holds up the others.
constexpr size_t kPiece = 64 << 10;

// The pause after a failed accept, for instance for lack of a descriptor.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

// Browsers must not guess types, frame a page, or load anything from elsewhere.
constexpr absl::string_view kHeaders =
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n"
    "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n";

absl::string_view Phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

bool IsBlocked() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  ASSIGN_OR_RETURN(server->sockets_,
                   ListeningSockets::Open(server->options_.address));
  server->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->wake_ < 0) {
    return absl::ErrnoToStatus(errno, "cannot open a file to serve HTTP with");
  }
  HttpServer* const self = server.get();
  server->threads_.emplace_back([self] { self->Run(); });
  for (int i = 0; i < self->options_.threads; ++i) {
    server->threads_.emplace_back([self] { self->Handle(); });
  }
  return server;
}

HttpServer::~HttpServer() {
  {
    absl::MutexLock lock(&mu_);
    is_stopping_ = true;
  }
  eventfd_write(wake_, 1);
  for (std::thread& thread : threads_) thread.join();
  for (const auto& [id, peer] : peers_) close(peer.file);
  if (wake_ >= 0) close(wake_);
}

void HttpServer::Run() {
  while (true) {
    const std::set<int> events = Await(options_.now());
    {
      absl::MutexLock lock(&mu_);
      if (is_stopping_) return;
    }
    eventfd_t wakes;
    eventfd_read(wake_, &wakes);
    const absl::Time now = options_.now();
    HandOver(now);
    for (auto next = peers_.begin(); next != peers_.end();) {
      const auto it = next++;
      Peer& peer = it->second;
      if ((events.count(peer.file) > 0 && !Serve(peer, now)) ||
          now >= peer.deadline) {
        Close(it);
      }
    }
    for (const int socket : sockets_.files()) {
      if (events.count(socket) > 0) Accept(socket, now);
    }
    // Answers that are done make room.
    HandOver(now);
  }
}

std::set<int> HttpServer::Await(absl::Time now) {
  std::vector<pollfd> polled = {{.fd = wake_, .events = POLLIN}};
  absl::Time wake = absl::InfiniteFuture();
  if (now < accept_after_) {
    wake = accept_after_;
  } else {
    for (const int socket : sockets_.files()) {
      polled.push_back({.fd = socket, .events = POLLIN});
    }
  }
  for (const auto& [id, peer] : peers_) {
    pollfd file = {.fd = peer.file};
    if (peer.state == State::kReading || peer.state == State::kEnding) {
      file.events = POLLIN;
    } else if (peer.state == State::kWriting) {
      file.events = POLLOUT;
    }
    polled.push_back(file);
    wake = std::min(wake, peer.deadline);
  }
  // Round up, so that the wait ends when a peer's time is over and not before.
  const absl::Duration wait =
      std::clamp(wake - now, absl::ZeroDuration(), absl::Hours(1)) +
      absl::Milliseconds(1);
  poll(polled.data(), polled.size(),
       static_cast<int>(absl::ToInt64Milliseconds(wait)));
  std::set<int> events;
  for (const pollfd& file : polled) {
    if (file.revents != 0) events.insert(file.fd);
  }
  return events;
}

void HttpServer::Accept(int socket, absl::Time now) {
  while (true) {
    const int file =
        accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (file < 0) {
      // Other errors concern one connection only, which is gone.
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
        accept_after_ = now + kAcceptPause;
      }
      return;
    }
    if (peers_.size() >= kMostPeers && !Displace()) {
      close(file);
      continue;
    }
    Peer peer{.file = file, .deadline = now + options_.timeout};
    // Usually the request comes with the connection.
    if (Read(peer, now)) {
      peers_[next_peer_++] = std::move(peer);
    } else {
      close(file);
    }
  }
}

bool HttpServer::Displace() {
  for (const State state : {State::kEnding, State::kReading, State::kWaiting}) {
    const auto oldest = std::find_if(
        peers_.begin(), peers_.end(),
        [state](const auto& peer) { return peer.second.state == state; });
    if (oldest != peers_.end()) {
      Close(oldest);
      return true;
    }
  }
  return false;
}

bool HttpServer::Serve(Peer& peer, absl::Time now) {
  switch (peer.state) {
    case State::kReading:
      return Read(peer, now);
    case State::kWriting:
      return Write(peer, now);
    case State::kWaiting:
    case State::kHandled:
      // The peer is gone: nothing else is awaited.
      return false;
    case State::kEnding:
      break;
  }
  char dropped[4096];
  const ssize_t size = recv(peer.file, dropped, sizeof(dropped), 0);
  return size > 0 || (size < 0 && IsBlocked());
}

bool HttpServer::Read(Peer& peer, absl::Time now) {
  char buffer[kMostRequestBytes];
  const ssize_t size = recv(peer.file, buffer, sizeof(buffer), 0);
  if (size < 0) return IsBlocked();
  if (size == 0) return false;
  peer.bytes.append(buffer, static_cast<size_t>(size));
  const size_t end = peer.bytes.find(kEndOfHead);
  if (end < kMostRequestBytes) {
    const std::string head = peer.bytes.substr(0, end);
    Take(head, peer, now);
  } else if (peer.bytes.size() >= kMostRequestBytes) {
    Answer({.status = 400, .body = "the request is too long\n"}, peer, now);
  }
  return true;
}

void HttpServer::Take(absl::string_view head, Peer& peer, absl::Time now) {
  absl::StatusOr<HttpRequest> request = ParseHttpRequest(head);
  if (!request.ok()) {
    return Answer(
        {.status = 400, .body = absl::StrCat(request.status().message(), "\n")},
        peer, now);
  }
  peer.request = *std::move(request);
  const std::string& path = peer.request.path;
  if (peer.request.method != "GET" && peer.request.method != "HEAD") {
    return Answer({.status = 405, .body = "only GET and HEAD\n"}, peer, now);
  }
  if (path == "/healthz") return Answer({.body = "alive\n"}, peer, now);
  if (path == "/readyz") {
    const absl::Status status = options_.ready();
    if (status.ok()) return Answer({.body = "ready\n"}, peer, now);
    return Answer({.status = 503, .body = absl::StrCat(status.message(), "\n")},
                  peer, now);
  }
  if (!IsForThisHost(peer.request)) {
    return Answer({.status = 421,
                   .body = "nothing is served under this name; use an IP "
                           "address, or allow the name (--http_hosts)\n"},
                  peer, now);
  }
  if (options_.handlers.count(path) == 0) {
    return Answer({.status = 404, .body = "there is no such page\n"}, peer,
                  now);
  }
  peer.state = State::kWaiting;
  peer.deadline = absl::InfiniteFuture();
}

bool HttpServer::IsForThisHost(const HttpRequest& request) const {
  if (!options_.hosts.has_value()) return true;
  const std::string host = HttpHost(request.host);
  return host == "localhost" || IsIpAddress(host) ||
         host == HttpHost(options_.address) ||
         std::count(options_.hosts->begin(), options_.hosts->end(), host) > 0;
}

void HttpServer::Answer(const HttpResponse& response, Peer& peer,
                        absl::Time now) const {
  peer.bytes = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", Phrase(response.status),
      "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body.size(), "\r\n",
      response.status == 405 ? "Allow: GET, HEAD\r\n" : "", kHeaders, "\r\n",
      peer.request.method == "HEAD" ? "" : response.body);
  peer.state = State::kWriting;
  peer.deadline = now + options_.timeout;
}

bool HttpServer::Write(Peer& peer, absl::Time now) {
  const absl::string_view rest =
      absl::string_view(peer.bytes).substr(peer.written, kPiece);
  const ssize_t size = send(peer.file, rest.data(), rest.size(), MSG_NOSIGNAL);
  if (size < 0) return IsBlocked();
  peer.written += static_cast<size_t>(size);
  if (peer.written < peer.bytes.size()) return true;
  shutdown(peer.file, SHUT_WR);
  peer.state = State::kEnding;
  peer.deadline = now + options_.timeout;
  return true;
}

void HttpServer::HandOver(absl::Time now) {
  absl::MutexLock lock(&mu_);
  for (auto& [id, response] : responses_) {
    const auto peer = peers_.find(id);
    // Otherwise the peer has gone away.
    if (peer != peers_.end()) Answer(response, peer->second, now);
  }
  handled_ -= static_cast<int>(responses_.size());
  responses_.clear();
  int answers = handled_;
  for (const auto& [id, peer] : peers_) {
    if (peer.state == State::kWriting) ++answers;
  }
  for (auto& [id, peer] : peers_) {
    if (answers >= kMostAnswers) break;
    if (peer.state != State::kWaiting) continue;
    ++answers;
    ++handled_;
    peer.state = State::kHandled;
    requests_.emplace_back(id, peer.request);
  }
}

void HttpServer::Close(Peers::iterator peer) {
  close(peer->second.file);
  peers_.erase(peer);
}

void HttpServer::Handle() {
  const auto has_work = [this] {
    mu_.AssertHeld();
    return is_stopping_ || !requests_.empty();
  };
  while (true) {
    std::pair<uint64_t, HttpRequest> next;
    {
      absl::MutexLock lock(&mu_, absl::Condition(&has_work));
      if (is_stopping_) return;
      next = std::move(requests_.front());
      requests_.pop_front();
    }
    HttpResponse response = options_.handlers.at(next.second.path)(next.second);
    {
      absl::MutexLock lock(&mu_);
      responses_.emplace_back(next.first, std::move(response));
    }
    eventfd_write(wake_, 1);
  }
}

}  // namespace causeway
